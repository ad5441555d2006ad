//! Reads pages and parts of files over HTTP, or from a folder.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use netrc::Netrc;
use percent_encoding::percent_decode_str;
use ureq::tls::{RootCerts, TlsConfig};
use ureq::{Agent, Proxy, ResponseExt};
use url::Url;

use super::address::IndexUrl;
use super::error::IndexError;

/// How long a server may take to accept a connection, and to begin an answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long one answer may take altogether.
const DEADLINE: Duration = Duration::from_secs(300);
/// PyTorch's page of torch has less than a megabyte.
const LARGEST_PAGE: u64 = 64 << 20;
const ACCEPT: &str =
    "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1";

/// Asks servers for pages and parts of files.
#[derive(Clone)]
pub struct Client {
    credentials: Arc<Credentials>,
    /// One for each kind of URL, because the proxy of one is not that of the other.
    agents: Arc<Mutex<HashMap<String, Agent>>>,
}

/// A page as it was answered.
#[derive(Debug)]
pub(super) struct Page {
    /// Where it came from in the end, which its links are relative to.
    pub(super) url: Url,
    pub(super) content_type: String,
    pub(super) text: String,
}

/// A part of a file.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) bytes: Vec<u8>,
    /// Where the part begins.
    pub(super) start: u64,
    /// How large the whole file is.
    pub(super) whole: u64,
}

impl Client {
    /// A client that knows the credentials of an index, if it has any, and those of the user's netrc.
    pub fn new(index: Option<&IndexUrl>) -> Self {
        // A netrc that is not there or is broken has no credentials; pip and curl treat it so too.
        let netrc = Netrc::new().unwrap_or_default();
        let index = index.map(|index| index.url().clone());
        Self { credentials: Arc::new(Credentials { index, netrc }), agents: Arc::default() }
    }

    /// The page at a URL.
    pub(super) fn page(&self, url: &Url) -> Result<Page, IndexError> {
        if url.scheme() == "file" {
            return page_of_folder(url);
        }
        let mut response = self.ask(url, &[("Accept", ACCEPT)])?;
        let there = response.get_uri().to_string().parse().unwrap_or_else(|_| url.clone());
        let content_type = header(&response, "content-type").unwrap_or_default().to_ascii_lowercase();
        let body = response.body_mut().with_config().limit(LARGEST_PAGE).read_to_vec();
        let bytes = body.map_err(|error| IndexError::unreachable(url, &error))?;
        Ok(Page { url: there, content_type, text: String::from_utf8_lossy(&bytes).into_owned() })
    }

    /// A part of a file, as `bytes=FIRST-LAST` or, for its end, `bytes=-COUNT`. None where the server gives only
    /// whole files.
    pub(super) fn part(&self, url: &Url, range: &str) -> Result<Option<Part>, IndexError> {
        // A compressed part would be a part of something else.
        let mut response = self.ask(url, &[("Range", range), ("Accept-Encoding", "identity")])?;
        if response.status() != 206 {
            return Ok(None);
        }
        let Some((start, whole)) = header(&response, "content-range").and_then(|value| position(&value))
        else {
            return Ok(None);
        };
        let body = response.body_mut().with_config().limit(LARGEST_PAGE).read_to_vec();
        let bytes = body.map_err(|error| IndexError::unreachable(url, &error))?;
        Ok(Some(Part { bytes, start, whole }))
    }

    fn ask(
        &self,
        url: &Url,
        headers: &[(&str, &str)],
    ) -> Result<ureq::http::Response<ureq::Body>, IndexError> {
        let public = super::without_credentials(url);
        let mut request = self.agent(&public).get(public.as_str());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(value) = self.credentials.header(url) {
            request = request.header("Authorization", value);
        }
        let response = request.call().map_err(|error| IndexError::unreachable(url, &error))?;
        match response.status().as_u16() {
            200..=299 => Ok(response),
            status => Err(IndexError::Refused { url: public.to_string(), status }),
        }
    }

    fn agent(&self, url: &Url) -> Agent {
        let kind = format!("{}://{}", url.scheme(), url.host_str().unwrap_or_default());
        let mut agents = self.agents.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        agents.entry(kind).or_insert_with(|| agent(url)).clone()
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // What it knows is secret.
        f.write_str("Client")
    }
}

fn agent(url: &Url) -> Agent {
    // The platform's verifier reads SSL_CERT_FILE and SSL_CERT_DIR.
    let tls = TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build();
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .user_agent(concat!("torchleak/", env!("CARGO_PKG_VERSION")))
        .tls_config(tls)
        .proxy(proxy(url, |name| std::env::var(name).ok()))
        .timeout_connect(Some(PATIENCE))
        .timeout_recv_response(Some(PATIENCE))
        .timeout_global(Some(DEADLINE));
    config.build().into()
}

/// The proxy that the usual variables name for a URL. ureq's own choice takes the first variable that is set, of
/// whichever kind.
fn proxy(url: &Url, variable: impl Fn(&str) -> Option<String>) -> Option<Proxy> {
    let is_local = match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => true,
    };
    let uri = url.as_str().parse().ok()?;
    if is_local || Proxy::try_from_env().is_some_and(|proxy| proxy.is_no_proxy(&uri)) {
        return None;
    }
    let own = format!("{}_proxy", url.scheme());
    [own.clone(), own.to_ascii_uppercase(), "all_proxy".to_owned(), "ALL_PROXY".to_owned()]
        .iter()
        .find_map(|name| variable(name).filter(|value| !value.is_empty()))
        .and_then(|value| Proxy::new(&value).ok())
}

/// Where a part begins and how large the whole is, from `bytes 0-99/1234`.
fn position(content_range: &str) -> Option<(u64, u64)> {
    let (range, whole) = content_range.trim().strip_prefix("bytes ")?.split_once('/')?;
    Some((range.split_once('-')?.0.trim().parse().ok()?, whole.trim().parse().ok()?))
}

fn header<T>(response: &ureq::http::Response<T>, name: &str) -> Option<String> {
    response.headers().get(name)?.to_str().ok().map(str::to_owned)
}

fn page_of_folder(url: &Url) -> Result<Page, IndexError> {
    let failed = |source| IndexError::File { url: url.to_string(), source };
    let path = url.to_file_path().map_err(|()| failed(std::io::ErrorKind::InvalidInput.into()))?;
    let path = if path.is_dir() { path.join("index.html") } else { path };
    let bytes = std::fs::read(&path)
        .map_err(|source| IndexError::File { url: path.display().to_string(), source })?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Ok(Page { url: url.clone(), content_type: "text/html".to_owned(), text })
}

/// What is known of users and passwords.
struct Credentials {
    index: Option<Url>,
    netrc: Netrc,
}

impl Credentials {
    /// The value of `Authorization` for a request: of the URL itself, of the index if it is the same server, or of
    /// the netrc.
    fn header(&self, url: &Url) -> Option<String> {
        let index = self.index.as_ref().filter(|index| index.origin() == url.origin());
        let (user, password) = [Some(url), index]
            .into_iter()
            .flatten()
            .find(|url| !url.username().is_empty() || url.password().is_some())
            .map(|url| (decoded(url.username()), decoded(url.password().unwrap_or_default())))
            .or_else(|| {
                let known =
                    self.netrc.hosts.get(url.host_str()?).or_else(|| self.netrc.hosts.get("default"))?;
                Some((known.login.clone(), known.password.clone()))
            })?;
        Some(format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}"))))
    }
}

fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        text.parse().unwrap()
    }

    #[test]
    fn the_proxy_is_that_of_the_kind_of_url_and_this_machine_has_none() {
        let variables = |name: &str| match name {
            "https_proxy" => Some("http://secure.example:1".to_owned()),
            "HTTP_PROXY" => Some("http://plain.example:2".to_owned()),
            _ => None,
        };
        let host = |text: &str| proxy(&url(text), variables).map(|proxy| proxy.host().to_owned());
        assert_eq!(host("https://example.org/").as_deref(), Some("secure.example"));
        assert_eq!(host("http://example.org/").as_deref(), Some("plain.example"));
        assert_eq!(host("http://127.0.0.1:80/"), None);
        assert_eq!(host("http://localhost:80/"), None);
    }

    #[test]
    fn credentials_go_to_their_own_server_only() {
        let netrc = "machine other.example login me password mine".parse().unwrap();
        let index = Some(url("https://u%40x:p@index.example/whl/"));
        let credentials = Credentials { index, netrc };
        let decode = |header: Option<String>| {
            let header = header?;
            let bytes = BASE64_STANDARD.decode(header.strip_prefix("Basic ")?).ok()?;
            String::from_utf8(bytes).ok()
        };
        let sent = |text: &str| decode(credentials.header(&url(text)));
        assert_eq!(sent("https://index.example/torch.whl").as_deref(), Some("u@x:p"));
        assert_eq!(sent("http://index.example/torch.whl"), None);
        assert_eq!(sent("https://third.example/torch.whl"), None);
        assert_eq!(sent("https://other.example/torch.whl").as_deref(), Some("me:mine"));
        assert_eq!(sent("https://a:b@third.example/torch.whl").as_deref(), Some("a:b"));
    }

    #[test]
    fn a_part_says_where_it_is() {
        assert_eq!(position("bytes 10-19/100"), Some((10, 100)));
        assert_eq!(position("bytes 10-19/*"), None);
        assert_eq!(position("bytes */100"), None);
        assert_eq!(position(""), None);
    }
}
