//! torchleak reproduces, measures and explains PyTorch memory leaks in which Python reference
//! cycles keep tensors alive.
//!
//! Data flows one way: case YAML -> environment -> worker process -> events -> measurements ->
//! verdict -> reports. No module calls one before it; see `docs/architecture.md`.

pub mod bundle;
pub mod bytes;
pub mod cache;
pub mod case;
pub mod cli;
pub mod cycles;
pub mod environment;
pub mod exit_code;
pub mod explain;
pub mod index;
pub mod interrupt;
pub mod machine;
pub mod measure;
pub mod native;
pub mod process;
pub mod report;
pub mod run;
pub mod say;
pub mod titan;
pub mod verdict;
pub mod versions;
pub mod watch;
pub mod worker;
pub mod writable;
