"""What torchleak runs next to PyTorch: one host per environment, one child per arm."""
