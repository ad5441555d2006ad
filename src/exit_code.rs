//! The exit codes, one value per cause. `docs/exit-codes.md` documents the same table.

/// What the process tells its caller, under `--exit-code expect` (the default).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum ExitCode {
    /// Every verdict is as expected, or the command did what was asked.
    Success = 0,
    /// At least one verdict is not as expected.
    Unexpected = 1,
    /// Bad usage or a bad case file; nothing was run.
    Usage = 2,
    /// There is no environment to run in: it cannot be found, made or checked.
    NoEnvironment = 3,
    /// At least one case has no verdict: `inconclusive` or `error`.
    NoVerdict = 4,
    /// Ctrl-C or SIGTERM ended the run early. What was recorded until then is kept.
    Interrupted = 130,
}

impl From<ExitCode> for std::process::ExitCode {
    fn from(code: ExitCode) -> Self {
        Self::from(code as u8)
    }
}

/// What the process tells `git bisect run`, under `--exit-code bisect`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum BisectCode {
    /// Every case is fixed.
    Good = 0,
    /// Some case leaks.
    Bad = 1,
    /// There is no verdict or no environment; git skips the commit.
    CannotTell = 125,
    /// Bad usage or an interruption; git stops the bisection.
    Failure = 128,
}

impl BisectCode {
    /// What a failure of the whole command means for a bisection: a commit without an environment can
    /// be skipped, a mistake in the command would repeat itself at every commit.
    pub const fn of_failure(code: ExitCode) -> Self {
        match code {
            ExitCode::NoEnvironment | ExitCode::NoVerdict => Self::CannotTell,
            _ => Self::Failure,
        }
    }
}

impl From<BisectCode> for std::process::ExitCode {
    fn from(code: BisectCode) -> Self {
        Self::from(code as u8)
    }
}
