//! A case on one device, with nothing left to default.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use pep440_rs::Version;
use torchleak_protocol::{Block, Checkpoint, Compile, Device, Dtype, Program, Start};

use super::{
    Case, Origin,
    arms::Arm,
    error::{CaseError, Problem},
    expect::{Expectation, Verdict},
    load,
    model::Sections,
    retains::Prediction,
};

/// A case on one device.
#[derive(Debug, Clone, PartialEq)]
pub struct Resolved {
    pub name: String,
    pub device: Device,
    pub body: Body,
    /// Training steps, warm-up included.
    pub steps: u32,
    pub warmup: u32,
    pub seed: u64,
    pub threads: u32,
    /// Processes that train together.
    pub ranks: u32,
    pub arms: Vec<Arm>,
    pub start: Start,
    pub prediction: Option<Prediction>,
    pub expect: Vec<Expectation>,
    /// Growth in bytes per step that still counts as flat, where the case says so.
    pub tolerance: Option<u64>,
    /// Bytes that each rank of an arm needs at its peak, where the case says so.
    pub memory: Option<u64>,
}

/// What is trained.
#[derive(Debug, Clone, PartialEq)]
pub enum Body {
    /// The llama3 block.
    Llama3(Box<Block>),
    /// The case's own program.
    File {
        /// The file's name, as the case gives it.
        name: String,
        /// Where it lies; none for a shipped case, whose program is inside the binary.
        path: Option<PathBuf>,
        text: String,
        dtype: Dtype,
        dims: BTreeMap<String, u64>,
    },
}

impl Resolved {
    pub(super) fn new(case: &Case, device: Device) -> Self {
        let Case { spec, .. } = case;
        let sections = Sections::of(spec, device);
        let body = match (&spec.program, sections.model, sections.input) {
            (None, Some(model), Some(input)) => {
                let unchecked = Checkpoint {
                    preserve_rng_state: true,
                    early_stop: true,
                    mode: Default::default(),
                    policy: torchleak_protocol::Activation::EverySecondMm,
                };
                let plain = Compile { disable: None, site: Default::default(), block: None };
                Body::Llama3(Box::new(Block {
                    model: model.llama3(),
                    input,
                    dtype: sections.dtype,
                    optimizer: spec.optimizer,
                    checkpoint: spec.checkpoint.as_ref().map_or(unchecked, |section| section.filled()),
                    compile: spec.compile.as_ref().map_or(plain, |section| section.filled()),
                    parallel: spec.parallel,
                }))
            }
            // A checked case without a model and an input has a program.
            (name, ..) => {
                let name = name.clone().unwrap_or_default();
                let path = match &case.origin {
                    Origin::File(file) => Some(load::program_path(file, &name)),
                    Origin::Shipped | Origin::Memory => None,
                };
                let text = case.program_source.clone().unwrap_or_default();
                Body::File { name, path, text, dtype: sections.dtype, dims: spec.dims.clone() }
            }
        };
        Self {
            name: spec.name.clone(),
            device,
            body,
            steps: sections.steps,
            warmup: spec.warmup,
            seed: spec.seed,
            threads: sections.threads,
            ranks: spec.ranks,
            arms: spec.arms.clone(),
            start: spec.imports.start(),
            prediction: case.prediction(device),
            expect: spec.expect.clone(),
            tolerance: spec.tolerance.map(|bytes| bytes.0),
            memory: sections.memory.map(|bytes| bytes.0),
        }
    }

    /// What the worker is told to train. A shipped case's own program is first written into `scratch`,
    /// a folder that must outlive the run.
    ///
    /// # Errors
    ///
    /// The program cannot be written.
    pub fn program(&self, scratch: &Path) -> Result<Program, CaseError> {
        match &self.body {
            Body::Llama3(block) => Ok(Program::Llama3(block.clone())),
            Body::File { name, path, text, dtype, dims } => {
                let path = match path {
                    Some(path) => path.clone(),
                    None => unpack(scratch, name, text)?,
                };
                Ok(Program::File { path: path.display().to_string(), dtype: *dtype, dims: dims.clone() })
            }
        }
    }

    /// How often the program applies its block, if it is one of ours.
    pub fn layers(&self) -> Option<u64> {
        match &self.body {
            Body::Llama3(block) => Some(u64::from(block.model.layers)),
            Body::File { .. } => None,
        }
    }

    /// The expected verdict in that environment: the first line of `expect:` that matches. None when
    /// no line speaks about it.
    pub fn expected(&self, torch: &Version, python: &Version) -> Option<Verdict> {
        self.expect.iter().find(|line| line.matches(torch, python, self.device)).map(|line| line.verdict)
    }
}

fn unpack(scratch: &Path, name: &str, text: &str) -> Result<PathBuf, CaseError> {
    let path = std::path::absolute(scratch.join(name)).unwrap_or_else(|_| scratch.join(name));
    std::fs::write(&path, text).map_err(|error| {
        let problem = Problem::new(format!("the program cannot be unpacked: {error}"));
        CaseError::new(
            &path.display().to_string(),
            None,
            vec![problem.hint("check the folder and its free space")],
        )
    })?;
    Ok(path)
}
