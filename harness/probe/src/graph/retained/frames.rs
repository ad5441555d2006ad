//! The variables of code that runs.
//!
//! Since Python 3.11 a frame shows its variables to the collector only once it no longer runs.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::graph::read::{Readers, entries};
use crate::graph::traverse::Unshown;

/// The frames that run, in all threads.
pub struct RunningFrames<'a, 'py> {
    readers: &'a Readers<'py>,
    frames: Vec<Bound<'py, PyAny>>,
    unshown: Unshown,
}

impl<'a, 'py> RunningFrames<'a, 'py> {
    pub fn new(readers: &'a Readers<'py>) -> PyResult<Self> {
        let current = readers.py.import("sys")?.call_method0("_current_frames")?.cast_into::<PyDict>()?;
        let mut frames: Vec<Bound<'py, PyAny>> = Vec::new();
        for (_, top) in entries(&current) {
            let mut next = Some(top);
            while let Some(frame) = next {
                next = readers.read("FrameType.f_back", &frame);
                frames.push(frame);
            }
        }
        let mut unshown = Unshown::default();
        for frame in &frames {
            // Older frames show their variables; what is counted twice is then held less from outside.
            let values = if shows_variables(readers.py) { Vec::new() } else { readers.locals(frame) };
            // The frame holds them as long as it runs, and nothing else runs here.
            unshown.insert(frame.as_ptr() as usize, values.iter().map(Bound::as_ptr).collect());
        }
        let frames = Self { readers, frames, unshown };
        frames.forget_copies();
        Ok(frames)
    }

    pub fn all(&self) -> &[Bound<'py, PyAny>] {
        &self.frames
    }

    pub fn unshown(&self) -> &Unshown {
        &self.unshown
    }

    /// Up to Python 3.12 reading a frame's variables leaves a copy of them in a dict of the frame, which
    /// would hold them until the frame is left.
    fn forget_copies(&self) {
        for frame in &self.frames {
            let Some(copy) = self.readers.copied_locals(frame) else { continue };
            // SAFETY: a live object. Frame and `copy` have a reference each; if the program has one too,
            // it called `locals()` and may want the dict.
            if unsafe { ffi::Py_REFCNT(copy.as_ptr()) } <= 2 {
                copy.clear();
            }
        }
    }
}

impl Drop for RunningFrames<'_, '_> {
    fn drop(&mut self) {
        self.forget_copies();
    }
}

fn shows_variables(py: Python<'_>) -> bool {
    py.version_info() < (3, 11)
}
