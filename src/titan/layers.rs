//! What an amount that each collect freed is made of.

use super::track::Facts;

/// Layers of torchtitan's llama3 models, for a log that does not say how many there are.
const LLAMA3: [(&str, u64); 3] = [("8B", 32), ("70B", 80), ("405B", 126)];

/// An amount as so many equal parts, and why.
///
/// An arithmetical fact and no more, unless the log tells the size of a block's output and it is the same to the byte.
pub fn factorised(bytes: u64, facts: &Facts) -> Option<String> {
    if let Some(layers) = facts.layers {
        let part = equal_part(bytes, layers)?;
        let output = block_output(part, facts).map_or_else(String::new, |output| format!("; {output}"));
        return Some(format!("{layers} x {} (one for each of {layers} layers{output})", exact(part)));
    }
    // Only where a single model fits.
    let mut fitting =
        LLAMA3.iter().filter_map(|(name, layers)| Some((name, layers, equal_part(bytes, *layers)?)));
    let (name, layers, part) = fitting.next()?;
    if fitting.next().is_some() || part % (1 << 20) != 0 {
        return None;
    }
    Some(format!(
        "{layers} x {} if the model has {layers} layers, as llama3 {name} has (--layers N says it)",
        exact(part)
    ))
}

fn equal_part(bytes: u64, layers: u64) -> Option<u64> {
    (bytes > 0 && layers > 0 && bytes.is_multiple_of(layers)).then(|| bytes / layers)
}

/// Whether a part is the output of one block, by the numbers that the log tells.
fn block_output(part: u64, facts: &Facts) -> Option<String> {
    let (batch, sequence, dim) = (facts.local_batch?, facts.sequence_length?, facts.dim?);
    let elements = batch.checked_mul(sequence)?.checked_mul(dim)?;
    let size = [2, 4].into_iter().find(|size| elements.checked_mul(*size) == Some(part))?;
    Some(format!(
        "a block's output, batch {batch} x sequence {sequence} x dim {dim} x {size} bytes, is exactly as large"
    ))
}

/// Bytes in the largest unit of which they are a whole number.
fn exact(bytes: u64) -> String {
    for (unit, shift) in [("GiB", 30), ("MiB", 20), ("KiB", 10)] {
        if bytes >= 1 << shift && bytes.is_multiple_of(1 << shift) {
            return format!("{} {unit}", bytes >> shift);
        }
    }
    format!("{bytes} bytes")
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const LLAMA3_8B: Facts = Facts {
        capacity: None,
        layers: Some(32),
        dim: Some(4096),
        local_batch: Some(1),
        sequence_length: Some(8192),
        total_steps: None,
    };

    #[test]
    fn two_gib_are_32_block_outputs_where_the_log_tells_their_size() {
        assert_eq!(
            factorised(2_147_483_648, &LLAMA3_8B).unwrap(),
            "32 x 64 MiB (one for each of 32 layers; a block's output, batch 1 x sequence 8192 x dim 4096 x 2 bytes, is \
             exactly as large)"
        );
        let half = Facts { sequence_length: Some(4096), ..LLAMA3_8B };
        assert!(factorised(2_147_483_648, &half).unwrap().contains("x 4 bytes"), "as float32");
    }

    #[rstest]
    #[case::only_the_layers_are_known(Facts { layers: Some(32), ..Facts::default() }, "32 x 64 MiB (one for each of 32 layers)")]
    #[case::a_block_of_another_size(Facts { dim: Some(5120), ..LLAMA3_8B }, "32 x 64 MiB (one for each of 32 layers)")]
    #[case::nothing_is_known(
        Facts::default(),
        "32 x 64 MiB if the model has 32 layers, as llama3 8B has (--layers N says it)"
    )]
    fn what_is_not_known_is_not_said(#[case] facts: Facts, #[case] expected: &str) {
        assert_eq!(factorised(2_147_483_648, &facts).unwrap(), expected);
    }

    #[rstest]
    #[case(2_147_483_649, Some(32))]
    #[case(2_147_483_648, Some(6))]
    #[case(5056, None)]
    #[case(0, Some(32))]
    fn an_amount_that_layers_do_not_divide_has_no_parts(#[case] bytes: u64, #[case] layers: Option<u64>) {
        assert_eq!(factorised(bytes, &Facts { layers, ..Facts::default() }), None);
    }
}
