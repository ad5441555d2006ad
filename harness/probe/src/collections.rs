//! Counts the collections of a watched script.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use pyo3::types::PyDict;
use torchleak_memory::in_use;
use torchleak_protocol::AutomaticCollections;

use crate::messages::to_python;

const FULL: u8 = 2;

/// Is called by the collector, as one of `gc.callbacks`, and counts what it does.
///
/// It is no Python function because Python runs handlers of signals in the first one after a long
/// collection, and throws away what a handler raises in a callback of the collector.
#[pyclass]
#[derive(Debug, Default)]
pub struct OtherCollections {
    /// Whether the collections of now are torchleak's own.
    #[pyo3(get, set)]
    paused: bool,
    /// Gives torch's statistics of a GPU by its index. Where it is absent the C allocator is asked.
    #[pyo3(get, set)]
    gpu_stats: Option<Py<PyAny>>,
    /// How many GPUs there are.
    #[pyo3(get, set)]
    gpus: usize,
    began: Option<(Instant, Option<i64>)>,
    found: BTreeMap<u8, AutomaticCollections>,
}

#[pymethods]
impl OtherCollections {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    fn __call__(&mut self, py: Python<'_>, phase: &str, info: &Bound<'_, PyDict>) -> PyResult<()> {
        if self.paused {
            return Ok(());
        }
        let count = |key: &str| info.as_any().get_item(key)?.extract::<u64>();
        let generation: u8 = info.as_any().get_item("generation")?.extract()?;
        // The counters can take longer to read than a young generation to collect.
        let level = if generation == FULL { self.level(py)? } else { None };
        if phase == "start" {
            self.began = Some((Instant::now(), level));
            return Ok(());
        }
        let (seconds, before) = match self.began.take() {
            Some((began, before)) => (began.elapsed(), before),
            None => (Duration::ZERO, None),
        };
        let found = self
            .found
            .entry(generation)
            .or_insert_with(|| AutomaticCollections { generation, ..Default::default() });
        found.collections += 1;
        found.objects += count("collected")?;
        found.uncollectable += count("uncollectable")?;
        found.seconds += seconds.as_secs_f64();
        if let (Some(before), Some(after)) = (before, level) {
            found.freed = Some(found.freed.unwrap_or(0) + before - after);
        }
        Ok(())
    }

    /// Gives what was counted since the last call: a list with the protocol's `AutomaticCollections` of each
    /// generation.
    fn take<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        // Making the list may itself begin a collection, which comes back to this object.
        let found = std::mem::take(&mut slf.borrow_mut().found);
        to_python(slf.py(), &found.into_values().collect::<Vec<_>>())
    }
}

impl OtherCollections {
    /// The counter that is judged by, in bytes.
    fn level(&self, py: Python<'_>) -> PyResult<Option<i64>> {
        let Some(stats) = &self.gpu_stats else {
            return Ok(in_use().and_then(|bytes| i64::try_from(bytes).ok()));
        };
        let mut total = 0;
        for gpu in 0..self.gpus {
            let stats = stats.bind(py).call1((gpu,))?;
            total +=
                stats.get_item("allocated_bytes")?.get_item("all")?.get_item("current")?.extract::<i64>()?;
        }
        Ok(Some(total))
    }
}
