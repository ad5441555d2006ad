//! What a case says that each step retains, in the memory that it is judged by.

/// Bytes per step that a case predicts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Predicted {
    /// All of them: what the allocator must show.
    pub total: u64,
    /// Those of tensors that Python holds: what a collect must find in garbage, to the byte.
    pub in_garbage: u64,
}

impl Predicted {
    /// Bytes of tensors all of which Python holds.
    pub const fn held_by_python(bytes: u64) -> Self {
        Self { total: bytes, in_garbage: bytes }
    }

    /// The part that C++ holds, so that no census of garbage can show it.
    pub const fn held_by_cpp(self) -> u64 {
        self.total.saturating_sub(self.in_garbage)
    }
}
