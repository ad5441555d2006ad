//! The views of one environment, used again one after the other.
//!
//! Making and removing a view takes seconds on a busy disk, restoring one a fraction of one.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Instant;

use super::Environment;
use super::error::EnvironmentError;
use super::progress::Progress;
use super::view::View;
use crate::cache::Cache;

type Idle = Mutex<Vec<View>>;

/// The views of an environment that nobody uses now. They go with it.
#[derive(Debug, Default)]
pub struct Views {
    idle: Arc<Idle>,
}

impl Views {
    /// Takes an idle view, or makes one: no two users share a view.
    ///
    /// # Errors
    /// One cannot be made.
    pub fn take(
        &self,
        base: &Environment,
        cache: &Cache,
        progress: &dyn Progress,
    ) -> Result<UsedView, EnvironmentError> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let view = match idle {
            Some(view) => view,
            None => View::make(base, cache, progress)?,
        };
        Ok(UsedView { view: Some(view), idle: Arc::downgrade(&self.idle) })
    }
}

/// A view in use. Dropping it gives it back as it was made, or removes it if it cannot be made so again.
#[derive(Debug)]
pub struct UsedView {
    /// None only while it is dropped.
    view: Option<View>,
    idle: Weak<Idle>,
}

impl Deref for UsedView {
    type Target = View;

    fn deref(&self) -> &View {
        self.view.as_ref().expect("it is there until it is dropped")
    }
}

impl DerefMut for UsedView {
    fn deref_mut(&mut self) -> &mut View {
        self.view.as_mut().expect("it is there until it is dropped")
    }
}

impl Drop for UsedView {
    fn drop(&mut self) {
        let (Some(mut view), Some(idle)) = (self.view.take(), self.idle.upgrade()) else { return };
        let started = Instant::now();
        let restored = view.restore();
        tracing::debug!("the view was restored in {:?}", started.elapsed());
        match restored {
            Ok(true) => idle.lock().unwrap_or_else(PoisonError::into_inner).push(view),
            Ok(false) => tracing::debug!("a program changed its view, which is not used again"),
            Err(error) => tracing::debug!("a view cannot be restored and is not used again: {error}"),
        }
    }
}
