//! The JSON Schema of a case file, for editors.

use super::spec::Spec;

/// The schema, as `torchleak schema` prints it and `cases/schema.json` holds it.
///
/// It knows keys, types and ranges. What spans several keys is only known to the loader.
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(Spec).to_value()
}

/// The schema as text, ending in a newline.
pub fn schema_text() -> String {
    // Pretty-printing a value that is JSON already cannot fail, and `#` prints it so.
    format!("{:#}\n", schema())
}
