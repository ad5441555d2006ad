//! Cases: one leak per YAML file.
//!
//! A file is read into a [`Spec`], checked across its keys, and kept with its own text as a [`Case`].
//! [`Case::resolved`] gives it for one device with nothing left to default. `docs/case-format.md`
//! describes the keys for people.
//!
//! Architecture invariant: a [`Case`] exists only after every check has passed for every device it can
//! run on, so nothing behind this module deals with bad cases.

mod arms;
mod catalog;
mod check;
mod document;
mod error;
mod expect;
mod explain;
mod index;
mod list;
mod load;
mod model;
mod partition;
mod reference;
mod resolved;
mod retains;
mod schema;
mod size;
mod spec;
mod suggest;
mod train;

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use torchleak_protocol::Device;

pub use arms::Arm;
pub use catalog::{Catalog, HEADLINE};
pub use document::Document;
pub use error::{CaseError, Position, Problem};
pub use expect::{Expectation, Range, Verdict};
pub use index::index;
pub use list::{list, list_json};
pub use model::{BlockKind, Model, On, Replacement};
pub use partition::Partition;
pub use reference::Reference;
pub use resolved::{Body, Resolved};
pub use retains::{
    CPU_RNG_STATE, CUDA_RNG_STATE, HeldBy, Per, Prediction, Retains, Tensor, TensorDtype, Term,
};
pub use schema::{schema, schema_text};
pub use size::Bytes;
pub use spec::{DeviceChoice, Imports, Spec, When};
pub use train::{Backend, CheckpointSection, CompileSection, Disable, DisableAt};

/// A checked case.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// The keys of the file.
    pub spec: Spec,
    /// The file's text, as it was read.
    pub source: String,
    /// Where it came from.
    pub origin: Origin,
    /// The text of the program that the case names.
    pub program_source: Option<String>,
}

/// Where a case came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// From inside the binary.
    Shipped,
    /// From memory, without a folder. Such a case names no program.
    Memory,
    /// From a file, by its absolute path.
    File(PathBuf),
}

impl Case {
    /// Reads and checks the case file at `path`.
    ///
    /// # Errors
    ///
    /// Anything that keeps the case from being run, with the file and, where one is to blame, the line.
    pub fn load(path: &Path) -> Result<Self, CaseError> {
        load::load(path)
    }

    /// Checks a case that is in memory. `file` is the name that errors show. A case that names a program
    /// is refused, because there is no folder to look for it in.
    ///
    /// # Errors
    ///
    /// As [`Case::load`].
    pub fn from_bytes(file: &str, bytes: &[u8]) -> Result<Self, CaseError> {
        load::parse(file, bytes, None, Origin::Memory, |name| {
            Err(Problem::new(format!("the program `{name}` has no folder")).hint("write the case to a file"))
        })
    }

    /// Checks a case as a run folder keeps it, where its file is called `case.yaml` whatever its name is.
    /// `program` gives the text of the program that it names.
    ///
    /// # Errors
    ///
    /// As [`Case::load`].
    pub fn kept(
        file: &str,
        yaml: &str,
        program: impl FnOnce(&str) -> Option<String>,
    ) -> Result<Self, CaseError> {
        load::parse(file, yaml.as_bytes(), None, Origin::Memory, |name| {
            program(name).ok_or_else(|| {
                Problem::new(format!("the program `{name}` is not beside it"))
                    .hint("a run keeps both in its folder; run the case again")
            })
        })
    }

    /// The case's name.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// Whether the case can run on that device.
    pub fn runs_on(&self, device: Device) -> bool {
        self.spec.device.allows(device)
    }

    /// What the case is predicted to retain per step on that device. None when it predicts nothing, or
    /// never runs there.
    pub fn prediction(&self, device: Device) -> Option<Prediction> {
        let sections = model::Sections::of(&self.spec, device);
        let dims = sections.dims(&self.spec.dims);
        // The check of the file has evaluated this for every device the case runs on.
        sections.retains?.evaluate(&dims, sections.dtype, device).ok().filter(|_| self.runs_on(device))
    }

    /// The case on one device, with its defaults filled in and `on:` applied.
    pub fn resolved(&self, device: Device) -> Resolved {
        Resolved::new(self, device)
    }

    /// SHA-256 over the file and its program, in hexadecimal: equal hashes run the same thing.
    pub fn content_hash(&self) -> String {
        let mut hash = Sha256::new();
        // The length keeps text from moving between the two without changing the hash.
        hash.update((self.source.len() as u64).to_le_bytes());
        hash.update(&self.source);
        hash.update(self.program_source.as_deref().unwrap_or_default());
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}
