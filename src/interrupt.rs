//! Ctrl-C and SIGTERM set one flag; whoever waits looks at it and ends what it started.
//!
//! A second signal ends the process at once, as people expect of an impatient Ctrl-C.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Installs the handlers. Call it once, before the first child is started.
///
/// # Errors
/// The operating system refuses the handler.
pub fn install() -> std::io::Result<()> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // The order matters: the second delivery finds the flag set and exits.
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&flag))?;
        signal_hook::flag::register(signal, Arc::clone(&flag))?;
    }
    // A second install would only replace handlers by equal ones.
    let _ = FLAG.set(flag);
    Ok(())
}

/// Whether the user asked to stop.
pub fn requested() -> bool {
    FLAG.get().is_some_and(|flag| flag.load(Ordering::SeqCst))
}
