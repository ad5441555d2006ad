//! From recorded events to numbers. Everything here is a pure function of a [`Recording`].
//!
//! Architecture invariant: nothing here reads a clock, a file or a process, so that a run folder
//! gives the same numbers for ever.

mod recording;
mod series;
mod slope;

pub use recording::{Loss, Planted, Recording};
pub use series::{
    GarbagePerStep, Place, Series, freeing_steps, garbage_per_step, level_gap, step_losses_differ,
};
pub use slope::{median, theil_sen};
