//! Asks many questions at once, and hears Ctrl-C while no answer comes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use super::error::IndexError;
use crate::interrupt;

/// Does work for each item on a few threads and gives the answers in order. `done` hears how many are done.
///
/// # Errors
/// [`IndexError::Interrupted`]: the user asked to stop. Requests that are under way are left to end by themselves.
pub fn in_parallel<T, R>(
    items: Vec<T>,
    work: impl Fn(&T) -> R + Send + Sync + 'static,
    mut done: impl FnMut(usize),
) -> Result<Vec<R>, IndexError>
where
    T: Send + Sync + 'static,
    R: Send + 'static,
{
    const THREADS: usize = 8;
    const TICK: Duration = Duration::from_millis(50);
    let count = items.len();
    let (shared, next) = (Arc::new((items, work)), Arc::new(AtomicUsize::new(0)));
    let (sender, answers) = mpsc::channel();
    for _ in 0..THREADS.min(count) {
        let (shared, next, sender) = (Arc::clone(&shared), Arc::clone(&next), sender.clone());
        std::thread::spawn(move || {
            let (items, work) = &*shared;
            while let Some((at, item)) =
                Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|at| Some((at, items.get(at)?)))
            {
                if interrupt::requested() || sender.send((at, work(item))).is_err() {
                    return;
                }
            }
        });
    }
    drop(sender);
    let mut found: Vec<Option<R>> = std::iter::repeat_with(|| None).take(count).collect();
    let mut known = 0;
    while known < count {
        if interrupt::requested() {
            return Err(IndexError::Interrupted);
        }
        match answers.recv_timeout(TICK) {
            Ok((at, answer)) => {
                found[at] = Some(answer);
                known += 1;
                done(known);
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            // A thread ends early only at an interrupt.
            Err(mpsc::RecvTimeoutError::Disconnected) => return Err(IndexError::Interrupted),
        }
    }
    Ok(found.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_in_the_order_of_the_questions() {
        let mut heard = Vec::new();
        let squares = in_parallel((0..50u64).collect(), |n| n * n, |done| heard.push(done)).unwrap();
        assert_eq!(squares, (0..50).map(|n| n * n).collect::<Vec<u64>>());
        assert_eq!(heard, (1..=50).collect::<Vec<usize>>());
    }
}
