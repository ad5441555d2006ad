//! Series of bytes over steps, taken from recordings.

use torchleak_protocol::{Census, GarbageRecord, Memory, StepRecord};

use super::slope::{median, theil_sen};
use super::{Loss, Recording};

/// Where memory is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The host's memory: what the C allocator has handed out.
    Host,
    /// The accelerator's memory: what torch's caching allocator has handed out.
    Device,
}

impl Place {
    /// The counter that is judged by, in bytes.
    pub fn bytes(self, memory: &Memory) -> Option<u64> {
        match self {
            Self::Host => memory.in_use,
            Self::Device => memory.device.as_ref().map(|device| device.allocated),
        }
    }

    /// The counter's name for a person.
    pub const fn counter(self) -> &'static str {
        match self {
            Self::Host => "in-use bytes of the C allocator",
            Self::Device => "allocated bytes of the CUDA caching allocator",
        }
    }

    fn holds(self, device: &str) -> bool {
        match self {
            Self::Host => device == "cpu",
            Self::Device => device != "cpu",
        }
    }

    /// Bytes of a census that lie in this place.
    pub fn census_bytes(self, census: &Census) -> u64 {
        census.iter().filter(|(device, _)| self.holds(device)).map(|(_, storages)| storages.bytes).sum()
    }
}

/// What a measured arm shows after its warm-up steps.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Bytes after each step, and after the collection where there was one.
    pub levels: Vec<(u32, f64)>,
    /// Bytes of live tensors that the collector tracks, after each step.
    pub census: Vec<(u32, f64)>,
    /// Bytes that each forced collection freed.
    pub freed: Vec<f64>,
}

impl Series {
    /// Takes the steps after `warmup`. None where a step lacks the counter.
    pub fn of(recording: &Recording, place: Place, warmup: u32) -> Option<Self> {
        let steps: Vec<&StepRecord> = recording.steps.iter().filter(|record| record.step > warmup).collect();
        let levels = steps
            .iter()
            .map(|record| {
                let memory = record.collected.as_ref().map_or(&record.memory, |collected| &collected.memory);
                Some((record.step, place.bytes(memory)? as f64))
            })
            .collect::<Option<Vec<_>>>()?;
        let freed = steps
            .iter()
            .filter_map(|record| record.collected.as_ref().map(|collected| (record, collected)))
            .map(|(record, collected)| {
                Some(place.bytes(&record.memory)? as f64 - place.bytes(&collected.memory)? as f64)
            })
            .collect::<Option<Vec<_>>>()?;
        let census =
            steps.iter().map(|record| (record.step, place.census_bytes(&record.census) as f64)).collect();
        Some(Self { levels, census, freed })
    }

    /// Bytes per step, robustly.
    pub fn growth(&self) -> Option<f64> {
        theil_sen(&self.levels)
    }

    /// Bytes of live tensors that every step adds: one jump is no growth here either.
    pub fn census_growth(&self) -> Option<f64> {
        Some(theil_sen(&self.census)?.min(typical_step(&self.census)?))
    }

    /// Bytes that a collection typically freed, or None where none was forced.
    pub fn freed_per_collect(&self) -> Option<f64> {
        median(&mut self.freed.clone())
    }

    /// Bytes of live tensors after the last step.
    pub fn last_census(&self) -> Option<f64> {
        Some(self.census.last()?.1)
    }

    /// Bytes that a typical step adds.
    pub fn typical_step(&self) -> Option<f64> {
        typical_step(&self.levels)
    }
}

/// The lower median of the differences from step to step. One large jump moves a slope, and does not
/// move this, even among three steps.
fn typical_step(levels: &[(u32, f64)]) -> Option<f64> {
    let mut differences: Vec<f64> = levels.windows(2).map(|pair| pair[1].1 - pair[0].1).collect();
    differences.sort_by(f64::total_cmp);
    differences.get(differences.len().saturating_sub(1) / 2).copied()
}

/// How much higher one arm lies than another after the last step. Both arms do the same work, so
/// what torch and Python keep for themselves cancels out.
pub fn level_gap(higher: &Series, lower: &Series) -> Option<f64> {
    Some(higher.levels.last()?.1 - lower.levels.last()?.1)
}

/// The steps whose collection freed more than so many bytes, each with what it freed; the warm-up is
/// included.
pub fn freeing_steps(recording: &Recording, place: Place, more_than: f64) -> Vec<(u32, f64)> {
    let freed = |record: &StepRecord| {
        let after = &record.collected.as_ref()?.memory;
        Some((record.step, place.bytes(&record.memory)? as f64 - place.bytes(after)? as f64))
    };
    recording.steps.iter().filter_map(freed).filter(|(_, freed)| *freed > more_than).collect()
}

/// What the diagnosis run found per step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GarbagePerStep {
    /// Bytes of tensor storages that only garbage uses: the median over the steps after warm-up.
    pub bytes: u64,
    /// The smallest and the largest of those steps.
    pub range: (u64, u64),
    /// Garbage objects of all types, the median.
    pub objects: u64,
    /// The sum over all steps, the warm-up included.
    pub total: u64,
    /// At how many steps after the warm-up there was any.
    pub steps: usize,
    /// The last step with any, the warm-up included.
    pub last: Option<u32>,
    /// The sum over all steps of what lay in other memory than that which is judged by.
    pub elsewhere: u64,
}

/// Summarises a diagnosis run. None when no step after `warmup` was reported.
pub fn garbage_per_step(recording: &Recording, place: Place, warmup: u32) -> Option<GarbagePerStep> {
    let bytes_of = |record: &GarbageRecord| place.census_bytes(&record.census);
    let warm: Vec<&GarbageRecord> = recording.garbage.iter().filter(|record| record.step > warmup).collect();
    let mut bytes: Vec<u64> = warm.iter().map(|record| bytes_of(record)).collect();
    let mut objects: Vec<u64> = warm.iter().map(|record| record.objects).collect();
    bytes.sort_unstable();
    objects.sort_unstable();
    Some(GarbagePerStep {
        bytes: *bytes.get(bytes.len() / 2)?,
        range: (*bytes.first()?, *bytes.last()?),
        objects: *objects.get(objects.len() / 2)?,
        total: recording.garbage.iter().map(bytes_of).sum(),
        steps: bytes.iter().filter(|bytes| **bytes > 0).count(),
        last: recording.garbage.iter().rev().find(|record| bytes_of(record) > 0).map(|record| record.step),
        elsewhere: recording
            .garbage
            .iter()
            .flat_map(|record| &record.census)
            .filter(|(device, _)| !place.holds(device))
            .map(|(_, storages)| storages.bytes)
            .sum(),
    })
}

/// The first step at which two arms report different losses, with both. Arms do the same work from
/// the same seed, so any difference means that they are not the same experiment.
pub fn step_losses_differ<'a>(one: &'a Recording, other: &'a Recording) -> Option<(u32, Loss<'a>, Loss<'a>)> {
    one.losses()
        .into_iter()
        .zip(other.losses())
        .find(|((_, loss), (_, other_loss))| loss != other_loss)
        .map(|((step, loss), (_, other_loss))| (step, loss, other_loss))
}
