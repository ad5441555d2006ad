"""What `torchleak watch` does inside the processes of a script that it does not change.

`importing` waits until the script has imported torch, `installing` then hooks into torch's own global
hooks, `watcher` measures after each step, `schedule` says which steps are followed by a collection, and
`events` writes what was found.
"""
