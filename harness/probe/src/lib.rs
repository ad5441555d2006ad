//! The Python extension of torchleak's workers.
