//! A package index that a test serves on this machine.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// What the server has and how it behaves.
#[derive(Default)]
pub struct Site {
    /// Content type and bytes, by the path as it is asked for, without percent signs.
    pub files: HashMap<String, (String, Vec<u8>)>,
    /// The value that `Authorization` must have.
    pub authorization: Option<String>,
    /// Whether it gives parts of files, as object stores do and simple servers do not.
    pub gives_parts: bool,
}

/// A server that runs as long as the test's process.
pub struct Server {
    pub port: u16,
    /// Every request, as `GET /torch/ bytes=-100` or without a range.
    pub asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    pub fn start(site: Site) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (site, log) = (Arc::new(site), Arc::clone(&asked));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (site, log) = (Arc::clone(&site), Arc::clone(&log));
                thread::spawn(move || answer(stream, &site, &log));
            }
        });
        Self { port, asked }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

/// Answers one request and closes. Whatever goes wrong is the client's to report.
fn answer(mut stream: TcpStream, site: &Site, log: &Mutex<Vec<String>>) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
    let Some(first) = lines.next() else { return };
    let headers: HashMap<String, String> = lines
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_once(':').map(|(k, v)| (k.to_ascii_lowercase(), v.trim().to_owned())))
        .collect();
    let mut words = first.split(' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let range = headers.get("range").map(String::as_str);
    log.lock().unwrap().push([method, path, range.unwrap_or_default()].join(" ").trim().to_owned());
    let found = site.files.get(&path.replace("%2B", "+"));
    let is_allowed =
        site.authorization.as_ref().is_none_or(|wanted| headers.get("authorization") == Some(wanted));
    let (status, kind, body, extra) = match found {
        _ if !is_allowed => ("401 Unauthorized", "text/plain", &b"who are you?"[..], String::new()),
        None => ("404 Not Found", "text/plain", &b"nothing here"[..], String::new()),
        Some((kind, body)) => {
            match range.filter(|_| site.gives_parts).and_then(|range| part(range, body.len())) {
                Some((from, to)) => {
                    let extra = format!("Content-Range: bytes {from}-{}/{}\r\n", to - 1, body.len());
                    ("206 Partial Content", kind.as_str(), &body[from..to], extra)
                }
                None => ("200 OK", kind.as_str(), &body[..], String::new()),
            }
        }
    };
    let ranges = if site.gives_parts { "Accept-Ranges: bytes\r\n" } else { "" };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{ranges}{extra}\
         Connection: close\r\n\r\n"
    );
    let body = if method == "HEAD" { &[] } else { body };
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
}

/// From where to where a range goes, the end not included.
fn part(range: &str, size: usize) -> Option<(usize, usize)> {
    let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
    if first.is_empty() {
        return Some((size.saturating_sub(last.parse().ok()?), size));
    }
    let from: usize = first.parse().ok()?;
    let to = last.parse::<usize>().map_or(size, |last| (last + 1).min(size));
    (from < to).then_some((from, to))
}
