//! The page of a project: HTML as of PEP 503, or JSON as of PEP 691.

use html5gum::{Token, Tokenizer};
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use url::Url;

use super::address::{IndexUrl, without_credentials};
use super::client::{Client, Page};
use super::error::IndexError;

/// One file of a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Its name, such as `torch-2.8.0.dev20250527+cu128-cp312-cp312-manylinux_2_28_x86_64.whl`.
    pub name: String,
    /// Where it is, with the hash that the index gives as its fragment.
    pub url: Url,
    /// Which Python it asks for.
    pub requires_python: Option<String>,
    /// Whether it was withdrawn.
    pub yanked: bool,
}

/// The files of a project, in the order of the page; none where the index does not know the project.
///
/// # Errors
/// The index cannot be read, or it is none.
pub fn files(client: &Client, index: &IndexUrl, project: &str) -> Result<Vec<File>, IndexError> {
    match client.page(&index.project(project)) {
        Ok(page) => files_of(&page),
        Err(error) if error.is_missing() => {
            // An index without the project and an address without an index both end here; the index itself tells.
            client.page(index.url()).map(|_| Vec::new())
        }
        Err(error) => Err(error),
    }
}

fn files_of(page: &Page) -> Result<Vec<File>, IndexError> {
    let bad =
        |problem: String| IndexError::NotAnIndex { url: without_credentials(&page.url).to_string(), problem };
    if page.content_type.contains("json") {
        return files_of_json(page).map_err(bad);
    }
    let files = files_of_html(page);
    if files.is_empty() {
        return Err(bad("it links no file of a package".to_owned()));
    }
    Ok(files)
}

fn files_of_json(page: &Page) -> Result<Vec<File>, String> {
    #[derive(Deserialize)]
    struct Project {
        meta: Meta,
        files: Vec<Listed>,
    }
    #[derive(Deserialize)]
    struct Meta {
        #[serde(rename = "api-version")]
        version: String,
    }
    #[derive(Deserialize)]
    struct Listed {
        filename: String,
        url: String,
        #[serde(default)]
        hashes: std::collections::BTreeMap<String, String>,
        #[serde(rename = "requires-python")]
        requires_python: Option<String>,
        /// True, false, or the reason.
        #[serde(default)]
        yanked: serde_json::Value,
    }
    let project: Project =
        serde_json::from_str(&page.text).map_err(|error| format!("its JSON has {error}"))?;
    if !project.meta.version.starts_with("1.") {
        return Err(format!(
            "it has version {} of the index API, and torchleak reads 1",
            project.meta.version
        ));
    }
    let files = project.files.into_iter().filter_map(|listed| {
        let mut url = page.url.join(&listed.url).ok()?;
        if let Some(hash) = listed.hashes.get("sha256") {
            url.set_fragment(Some(&format!("sha256={hash}")));
        }
        Some(File {
            name: listed.filename,
            url,
            requires_python: listed.requires_python,
            yanked: !matches!(listed.yanked, serde_json::Value::Null | serde_json::Value::Bool(false)),
        })
    });
    Ok(files.collect())
}

fn files_of_html(page: &Page) -> Vec<File> {
    let mut base = page.url.clone();
    let mut files = Vec::new();
    for token in Tokenizer::new(page.text.as_str()) {
        let Ok(Token::StartTag(tag)) = token else { continue };
        let attribute = |name: &[u8]| {
            let (_, value) = tag.attributes.iter().find(|(key, _)| key.as_slice() == name)?;
            Some(String::from_utf8_lossy(value.value.as_slice()).into_owned())
        };
        let Some(link) = attribute(b"href").and_then(|href| base.join(href.trim()).ok()) else { continue };
        match tag.name.as_slice() {
            b"base" => base = link,
            b"a" => {
                let name = link.path_segments().and_then(|mut parts| parts.next_back()).unwrap_or_default();
                let name = percent_decode_str(name).decode_utf8_lossy().into_owned();
                if [".whl", ".tar.gz", ".zip"].iter().any(|ending| name.ends_with(ending)) {
                    let requires_python = attribute(b"data-requires-python").filter(|text| !text.is_empty());
                    files.push(File {
                        name,
                        url: link,
                        requires_python,
                        yanked: attribute(b"data-yanked").is_some(),
                    });
                }
            }
            _ => {}
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(content_type: &str, text: &str) -> Page {
        Page {
            url: "https://example.org/whl/cu128/torch/".parse().unwrap(),
            content_type: content_type.to_owned(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn names_are_decoded_links_resolved_and_attributes_read() {
        let html = r##"<!DOCTYPE html><html><body><h1>Links for torch</h1>
            <a href="/whl/cu128/torch-2.8.0.dev20250527%2Bcu128-cp312-cp312-linux_x86_64.whl#sha256=ab"
               data-requires-python="&gt;=3.9.0">torch-2.8.0.dev20250527+cu128-cp312-cp312-linux_x86_64.whl</a><br/>
            <A HREF='../old/torch-1.0-py3-none-any.whl' data-yanked="">torch</A>
            <!-- <a href="torch-9.9-py3-none-any.whl">no</a> --><a href="../">up</a><a name="x">no link</a>
            </body></html>"##;
        let files = files_of(&page("text/html", html)).unwrap();
        assert_eq!(files.len(), 2);
        assert_eq!(files[0].name, "torch-2.8.0.dev20250527+cu128-cp312-cp312-linux_x86_64.whl");
        assert_eq!(
            files[0].url.as_str(),
            "https://example.org/whl/cu128/torch-2.8.0.dev20250527%2Bcu128-cp312-cp312-linux_x86_64.whl#sha256=ab"
        );
        assert_eq!(files[0].requires_python.as_deref(), Some(">=3.9.0"));
        assert!(!files[0].yanked && files[1].yanked);
        assert_eq!(files[1].url.as_str(), "https://example.org/whl/cu128/old/torch-1.0-py3-none-any.whl");
    }

    #[test]
    fn json_gives_the_same_as_html() {
        let json = r#"{"meta": {"api-version": "1.1"}, "name": "torch", "files": [
            {"filename": "torch-1.0-py3-none-any.whl", "url": "../torch-1.0-py3-none-any.whl",
             "hashes": {"sha256": "ab"}, "requires-python": ">=3.9", "yanked": false},
            {"filename": "torch-1.1-py3-none-any.whl", "url": "torch-1.1-py3-none-any.whl", "hashes": {},
             "yanked": "broken"}]}"#;
        let html = r#"<a href="../torch-1.0-py3-none-any.whl#sha256=ab" data-requires-python="&gt;=3.9">1</a>
            <a href="torch-1.1-py3-none-any.whl" data-yanked="broken">2</a>"#;
        let of = |kind, text| files_of(&page(kind, text)).unwrap();
        assert_eq!(of("application/vnd.pypi.simple.v1+json", json), of("text/html", html));
    }

    #[test]
    fn a_page_that_is_something_else_is_said_to_be() {
        for (kind, text) in [
            ("text/html", "<html><a href='/login'>Please log in</a></html>"),
            ("text/html", ""),
            ("application/json", "{\"error\": 1}"),
            ("application/json", r#"{"meta": {"api-version": "2.0"}, "files": []}"#),
        ] {
            let error = files_of(&page(kind, text)).unwrap_err();
            assert!(matches!(error, IndexError::NotAnIndex { .. }), "{error}");
            assert!(error.hint().is_some());
        }
    }

    #[test]
    fn a_link_that_is_no_url_is_passed_over() {
        let html =
            "<a href='http://[/torch-1.0-py3-none-any.whl'>x</a><a href='torch-1.1-py3-none-any.whl'>y</a>";
        assert_eq!(files_of(&page("text/html", html)).unwrap().len(), 1);
    }

    proptest::proptest! {
        #[test]
        fn any_page_is_read_or_refused(text in "\\PC{0,200}", json in proptest::bool::ANY) {
            let kind = if json { "application/json" } else { "text/html" };
            let _ = files_of(&page(kind, &text));
        }
    }
}
