//! Delta debugging: as many simplifications at once as still leave the leak.

/// Finds the simplifications, of so many, that can be made together. `leaks` is asked whether the case still leaks
/// with some of them, about several such choices at once.
///
/// What it gives leaks, and no further one of the rest can be made besides (Zeller and Hildebrandt, "Simplifying
/// and isolating failure-inducing input", 2002, where the input is what is *not* simplified). That the case leaks
/// without any is known before.
///
/// # Errors
/// What `leaks` fails with.
pub fn minimise<E>(
    count: usize,
    mut leaks: impl FnMut(&[Vec<usize>]) -> Result<Vec<bool>, E>,
) -> Result<Vec<usize>, E> {
    let without = |kept: &[usize]| -> Vec<usize> { (0..count).filter(|one| !kept.contains(one)).collect() };
    // What is left as it is in the case.
    let mut kept: Vec<usize> = (0..count).collect();
    if count == 0 || leaks(&[without(&[])])?.first() == Some(&true) {
        return Ok(without(&[]));
    }
    let mut parts = 2;
    while kept.len() > 1 {
        let chunks: Vec<Vec<usize>> =
            kept.chunks(kept.len().div_ceil(parts)).map(<[usize]>::to_vec).collect();
        let complements = chunks
            .iter()
            .map(|chunk| kept.iter().copied().filter(|one| !chunk.contains(one)).collect::<Vec<usize>>());
        // Each of two halves is the other's complement.
        let subsets: Vec<Vec<usize>> = match chunks.len() {
            2 => chunks.clone(),
            _ => chunks.iter().cloned().chain(complements).collect(),
        };
        let asked: Vec<Vec<usize>> = subsets.iter().map(|subset| without(subset)).collect();
        let answers = leaks(&asked)?;
        let smaller =
            answers.iter().position(|leaks| *leaks).and_then(|at| subsets.get(at).map(|found| (at, found)));
        match smaller {
            Some((at, found)) => {
                parts = if at < chunks.len() { 2 } else { (parts - 1).max(2) };
                kept = found.clone();
            }
            None if chunks.len() >= kept.len() => break,
            None => parts = (2 * parts).min(kept.len()),
        }
    }
    Ok(without(&kept))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::convert::Infallible;

    use proptest::prelude::*;

    use super::*;

    fn found(count: usize, leaks: impl Fn(&BTreeSet<usize>) -> bool) -> (BTreeSet<usize>, usize) {
        let mut rounds = 0;
        let made = minimise(count, |choices| {
            rounds += 1;
            assert!(rounds <= 2 * count * count + 2, "it does not end");
            Ok::<_, Infallible>(choices.iter().map(|made| leaks(&made.iter().copied().collect())).collect())
        });
        let Ok(made) = made;
        (made.into_iter().collect(), rounds)
    }

    #[test]
    fn simplifications_that_do_not_disturb_each_other_are_made_in_one_round() {
        assert_eq!(found(7, |_| true), ((0..7).collect(), 1));
        assert_eq!(found(0, |_| unreachable!("nothing is to be asked")), (BTreeSet::new(), 0));
    }

    #[test]
    fn a_failing_question_ends_the_search_with_its_error() {
        assert_eq!(minimise(3, |_| Err("interrupted")), Err("interrupted"));
    }

    proptest! {
        #[test]
        fn exactly_those_that_would_end_the_leak_are_left_out(
            count in 1..12_usize, needed in proptest::collection::btree_set(0..12_usize, 0..6),
        ) {
            let needed: BTreeSet<usize> = needed.into_iter().filter(|one| *one < count).collect();
            let (made, _) = found(count, |made| made.is_disjoint(&needed));
            // ddmin never tries to make none of them, and one may not be enough to leave out for it to see.
            let expected: BTreeSet<usize> = (0..count).filter(|one| !needed.contains(one)).collect();
            prop_assert_eq!(made, expected);
        }

        #[test]
        fn what_is_found_leaks_and_no_further_one_can_be_made(
            count in 1..9_usize, seed in any::<u64>(),
        ) {
            // Any function of the choice at all, but that nothing simplified leaks.
            let leaks = |made: &BTreeSet<usize>| {
                let bits = made.iter().fold(0_u64, |bits, one| bits | 1 << one);
                bits == 0 || (bits.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ seed).count_ones() % 2 == 0
            };
            let (made, _) = found(count, leaks);
            prop_assert!(leaks(&made));
            for further in (0..count).filter(|one| !made.contains(one)) {
                let more = made.iter().copied().chain([further]).collect();
                prop_assert!(!leaks(&more), "{:?} could be made besides {:?}", further, made);
            }
        }
    }
}
