//! The only place on the worker's side that writes messages.

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use torchleak_protocol::{ArmEvent, HostEvent, WatchEvent};

/// Writes one [`ArmEvent`], given as a dict, to a descriptor as one JSON line.
///
/// Raises ValueError if the dict is no such event and OSError if the pipe cannot be written.
#[pyfunction]
pub fn send_arm(fd: i32, event: &Bound<'_, PyAny>) -> PyResult<()> {
    send::<ArmEvent>(fd, event)
}

/// Writes one [`HostEvent`], given as a dict, to a descriptor as one JSON line.
///
/// Raises ValueError if the dict is no such event and OSError if the pipe cannot be written.
#[pyfunction]
pub fn send_host(fd: i32, event: &Bound<'_, PyAny>) -> PyResult<()> {
    send::<HostEvent>(fd, event)
}

/// Writes one [`WatchEvent`], given as a dict, to a descriptor as one JSON line.
///
/// Raises ValueError if the dict is no such event and OSError if the file cannot be written.
#[pyfunction]
pub fn send_watch(fd: i32, event: &Bound<'_, PyAny>) -> PyResult<()> {
    send::<WatchEvent>(fd, event)
}

/// Turns a protocol type into plain Python objects.
pub fn to_python<'py, T: Serialize>(py: Python<'py>, value: &T) -> PyResult<Bound<'py, PyAny>> {
    pythonize::pythonize(py, value).map_err(|error| PyValueError::new_err(error.to_string()))
}

fn send<T: Serialize + DeserializeOwned>(fd: i32, event: &Bound<'_, PyAny>) -> PyResult<()> {
    let event: T = pythonize::depythonize(event)
        .map_err(|error| PyValueError::new_err(format!("not a message of the protocol: {error}")))?;
    let mut line = serde_json::to_vec(&event)
        .map_err(|error| PyValueError::new_err(format!("a message has no JSON form: {error}")))?;
    line.push(b'\n');
    write_all(fd, &line)
}

fn write_all(fd: i32, mut bytes: &[u8]) -> PyResult<()> {
    while !bytes.is_empty() {
        // SAFETY: the pointer and the length describe one live slice.
        let written = unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) };
        match usize::try_from(written) {
            Ok(count) => bytes = &bytes[count..],
            Err(_) => {
                let error = std::io::Error::last_os_error();
                if error.kind() != std::io::ErrorKind::Interrupted {
                    return Err(PyOSError::new_err(format!("cannot write a message: {error}")));
                }
            }
        }
    }
    Ok(())
}
