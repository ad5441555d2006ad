//! A case as a document whose keys can be changed, and the text of the file that it then is.

use serde_json::{Map, Value};
use torchleak_protocol::Device;

use super::{
    Case,
    error::{CaseError, Problem},
    explain::explain,
    load,
};

/// The keys that a reader looks for first, and those that a case ends with; the others lie between them.
const FIRST: [&str; 7] = ["name", "summary", "upstream", "program", "dims", "model", "input"];
const LAST: [&str; 2] = ["retains", "expect"];

/// The keys of a case file. Comments are not among them.
#[derive(Debug, Clone, PartialEq)]
pub struct Document(Map<String, Value>);

impl Case {
    /// The case's keys for one device: what `on:` replaces there is replaced.
    ///
    /// # Errors
    ///
    /// The text cannot be read as plain keys and values.
    pub fn document(&self, device: Device) -> Result<Document, CaseError> {
        let mut keys: Map<String, Value> = serde_yaml::from_str_with_options(&self.source, load::options())
            .map_err(|error| {
            CaseError::new(self.name(), Some(&self.source), explain(&error, &self.source))
        })?;
        let name = match device {
            Device::Cpu => "cpu",
            Device::Cuda => "cuda",
        };
        let replaced = keys.remove("on").and_then(|mut on| on.get_mut(name).map(Value::take));
        if let Some(Value::Object(sections)) = replaced {
            keys.extend(sections.into_iter().filter(|(_, section)| !section.is_null()));
        }
        Ok(Document(keys))
    }

    /// The case that this one becomes with the keys of `document`. It keeps its program.
    ///
    /// # Errors
    ///
    /// The document is no case.
    pub fn with_document(&self, document: &Document) -> Result<Self, CaseError> {
        let text = document.text()?;
        let name = document.0.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
        load::parse(&format!("{name}.yaml"), text.as_bytes(), Some(name.clone()), self.origin.clone(), |_| {
            Ok(self.program_source.clone().unwrap_or_default())
        })
    }
}

impl Document {
    /// Sets the key at a path such as `checkpoint/early_stop`. Mappings on the way to it are made.
    pub fn set(&mut self, path: &str, value: Value) {
        let mut keys = &mut self.0;
        let mut path = path;
        while let Some((section, rest)) = path.split_once('/') {
            let section = keys.entry(section).or_insert(Value::Null);
            if !section.is_object() {
                *section = Value::Object(Map::new());
            }
            let Value::Object(inner) = section else { return };
            (keys, path) = (inner, rest);
        }
        keys.insert(path.to_owned(), value);
    }

    /// The value of the key at a path, if it is there.
    pub fn get(&self, path: &str) -> Option<&Value> {
        let mut parts = path.split('/');
        let first = self.0.get(parts.next()?)?;
        parts.try_fold(first, |section, key| section.get(key))
    }

    /// Takes the key at a path away, if it is there.
    pub fn remove(&mut self, path: &str) {
        match path.rsplit_once('/') {
            None => {
                self.0.remove(path);
            }
            Some((section, key)) => {
                if let Some(Value::Object(mut inner)) = self.get(section).cloned() {
                    inner.remove(key);
                    self.set(section, Value::Object(inner));
                }
            }
        }
    }

    /// The paths of all keys, those of sections before those inside them.
    pub fn paths(&self) -> Vec<String> {
        fn below(keys: &Map<String, Value>, prefix: &str, paths: &mut Vec<String>) {
            for (key, value) in keys {
                let path = format!("{prefix}{key}");
                paths.push(path.clone());
                if let Value::Object(inner) = value {
                    below(inner, &format!("{path}/"), paths);
                }
            }
        }
        let mut paths = Vec::new();
        below(&self.0, "", &mut paths);
        paths
    }

    /// The text of the file.
    ///
    /// # Errors
    ///
    /// A value cannot be written as YAML.
    pub fn text(&self) -> Result<String, CaseError> {
        let between =
            self.0.keys().map(String::as_str).filter(|key| !FIRST.contains(key) && !LAST.contains(key));
        FIRST.into_iter().chain(between).chain(LAST).try_fold(String::new(), |text, key| {
            let Some((key, value)) = self.0.get_key_value(key) else { return Ok(text) };
            let section = Map::from_iter([(key.clone(), value.clone())]);
            let section = serde_yaml::to_string(&section).map_err(|error| {
                let problem = Problem::new(format!("`{key}` cannot be written as YAML: {error}"));
                CaseError::new("the derived case", None, vec![problem])
            })?;
            Ok(text + &section)
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::case::Catalog;

    fn headline() -> Case {
        Catalog::shipped().unwrap().get(crate::case::HEADLINE).unwrap().clone()
    }

    #[test]
    fn every_shipped_case_is_the_same_after_it_was_a_document() {
        for case in Catalog::shipped().unwrap().cases() {
            for device in case.spec.device.devices() {
                let document = case.document(device).unwrap();
                let again = case.with_document(&document).unwrap();
                assert_eq!(again.resolved(device), case.resolved(device), "{}", document.text().unwrap());
                assert_eq!(again.spec.summary, case.spec.summary);
            }
        }
    }

    #[test]
    fn a_key_is_set_through_words_and_missing_sections() {
        let mut document = headline().document(Device::Cpu).unwrap();
        document.set("compile/disable", json!("none"));
        document.set("compile/disable/api", json!("torch.compiler.disable"));
        document.set("on/cpu/steps", json!(9));
        assert_eq!(document.get("compile/disable"), Some(&json!({"api": "torch.compiler.disable"})));
        document.remove("compile/disable/api");
        document.remove("nowhere/at/all");
        assert_eq!(document.get("compile/disable"), Some(&json!({})));
        assert!(document.paths().contains(&"on/cpu/steps".to_owned()));
    }

    #[test]
    fn a_document_that_is_no_case_says_what_is_wrong() {
        let case = headline();
        let mut document = case.document(Device::Cpu).unwrap();
        document.set("checkpoint", json!({"mode": "none"}));
        let error = case.with_document(&document).unwrap_err();
        assert!(error.to_string().contains("without checkpointing nothing is recomputed"), "{error}");
    }
}
