//! Did-you-mean.

/// The candidate that was most probably meant, if any is close enough to be worth naming.
pub fn closest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Distances are quadratic in length, and nobody misspells a key at such length.
    if word.len() > 64 {
        return None;
    }
    let lowered = word.to_lowercase().replace(['_', ' '], "-");
    candidates
        .into_iter()
        .map(|candidate| {
            let other = candidate.to_lowercase().replace(['_', ' '], "-");
            (strsim::jaro_winkler(&lowered, &other), strsim::damerau_levenshtein(&lowered, &other), candidate)
        })
        // Either measure alone has blind spots: one is strict with short words, the other with prefixes.
        .filter(|(similar, edits, candidate)| *similar > 0.85 || *edits <= candidate.len() / 4)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, _, candidate)| candidate)
}

/// A sentence with the closest candidate, if there is one, and all that is allowed.
pub fn choices(word: &str, allowed: &[&str]) -> String {
    let listed = allowed.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
    match closest(word, allowed.iter().copied()) {
        Some(meant) => format!("did you mean `{meant}`? Allowed here: {listed}"),
        None => format!("allowed here: {listed}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_find_their_word_and_strangers_find_none() {
        let keys = ["steps", "warmup", "checkpoint", "kv_heads", "recompute-fn"];
        assert_eq!(closest("step", keys), Some("steps"));
        assert_eq!(closest("chekpoint", keys), Some("checkpoint"));
        assert_eq!(closest("kv-heads", keys), Some("kv_heads"));
        assert_eq!(closest("recompute_fn", keys), Some("recompute-fn"));
        assert_eq!(closest("banana", keys), None);
        assert_eq!(closest(&"a".repeat(100_000), keys), None);
    }
}
