use proptest::prelude::*;

use super::*;

/// What a search did on a history whose answers are fixed.
struct Searched {
    conclusion: Conclusion,
    seen: Vec<Seen>,
    tests: usize,
}

/// Searches a history; `again` says what a candidate shows when it is tested again.
fn search(find: Find, history: &[Answer], again: impl Fn(usize) -> Answer) -> Searched {
    let mut seen = vec![Seen::default(); history.len()];
    for tests in 0.. {
        match next_step(find, &seen) {
            Step::Test(index) => {
                assert_eq!(seen[index].first, None, "candidate {index} is tested a second time");
                seen[index].first = Some(history[index]);
            }
            Step::Recheck(index) => {
                assert_eq!(seen[index].again, None, "candidate {index} is tested a third time");
                seen[index].again = Some(again(index));
            }
            Step::Done(conclusion) => return Searched { conclusion, seen, tests },
        }
    }
    unreachable!("a search of finitely many candidates ends")
}

fn steady(find: Find, history: &[Answer]) -> Searched {
    search(find, history, |index| history[index])
}

fn found(searched: &Searched) -> &Change {
    match &searched.conclusion {
        Conclusion::Change(change) => change,
        other => panic!("no change but {other:?}"),
    }
}

/// `g`, `b` and `?` for a history that a person can read.
fn history(text: &str) -> Vec<Answer> {
    text.chars()
        .map(|letter| match letter {
            'g' => Answer::Good,
            'b' => Answer::Bad,
            _ => Answer::Unknown,
        })
        .collect()
}

fn log2(candidates: usize) -> usize {
    (usize::BITS - (candidates - 1).leading_zeros()) as usize
}

fn either() -> impl Strategy<Value = Find> {
    prop_oneof![Just(Find::Introduced), Just(Find::Fixed)]
}

/// A history that changes once, behind `boundary`, and holes in it: where they are, not at the ends.
fn monotone() -> impl Strategy<Value = (Find, usize, Vec<Answer>)> {
    // Both scattered holes and long blocks of them.
    let scattered = |count: usize| prop::collection::vec(any::<bool>(), count).boxed();
    let block = |count: usize| {
        (0..count, 0..count)
            .prop_map(move |(one, other)| {
                (0..count).map(|index| one.min(other) <= index && index <= one.max(other)).collect::<Vec<_>>()
            })
            .boxed()
    };
    (either(), 2_usize..200).prop_flat_map(move |(find, count)| {
        (Just(find), 1..count, prop_oneof![scattered(count), block(count), Just(vec![false; count])])
            .prop_map(move |(find, boundary, holes)| {
                let answer = |index| if index < boundary { find.before() } else { find.after() };
                let is_hole = |index: usize| holes[index] && index > 0 && index < count - 1;
                let told = |index| if is_hole(index) { Answer::Unknown } else { answer(index) };
                (find, boundary, (0..count).map(told).collect())
            })
    })
}

proptest! {
    #[test]
    fn one_change_is_found_or_lies_in_an_honest_range((find, boundary, history) in monotone()) {
        let searched = steady(find, &history);
        let change = found(&searched);
        prop_assert!(change.before < boundary && boundary <= change.after);
        prop_assert_eq!(history[change.before], find.before());
        prop_assert_eq!(history[change.after], find.after());
        prop_assert!((change.before + 1..change.after).all(|index| searched.seen[index].first == Some(Answer::Unknown)));
        let between: Vec<usize> = (change.before + 1..change.after).collect();
        prop_assert_eq!(&change.untold, &between);
        prop_assert!(change.contradicting.is_empty());
        prop_assert_eq!(change.is_conclusive(), change.before + 1 == change.after);
    }

    #[test]
    fn one_change_is_found_with_few_tests((find, _, history) in monotone()) {
        let holes = history.iter().filter(|answer| **answer == Answer::Unknown).count();
        let tests = steady(find, &history).tests;
        // Two ends, two that are tested again, and a few that holes keep from halving what is left.
        prop_assert!(tests <= log2(history.len()) + holes + 8, "{} tests with {} holes", tests, holes);
        if holes == 0 {
            prop_assert!(tests <= log2(history.len()) + 4);
        }
    }

    #[test]
    fn whatever_the_history_the_reported_pair_was_seen_to_differ_and_all_between_was_tried(
        find in either(),
        history in prop::collection::vec(prop_oneof![Just(Answer::Good), Just(Answer::Bad), Just(Answer::Unknown)], 0..40),
    ) {
        let searched = steady(find, &history);
        let last = history.len().saturating_sub(1);
        match searched.conclusion {
            Conclusion::TooFew => prop_assert!(history.len() < 2),
            Conclusion::EndUnknown(end) => {
                prop_assert!(end == 0 || end == last);
                prop_assert_eq!(history[end], Answer::Unknown);
            }
            Conclusion::EndsAlike(answer) => {
                prop_assert_eq!((history[0], history[last]), (answer, answer));
                prop_assert_eq!(searched.tests, 2);
            }
            Conclusion::EndsSwapped => {
                prop_assert_eq!((history[0], history[last]), (find.after(), find.before()));
            }
            Conclusion::Change(change) => {
                prop_assert_eq!(searched.seen[change.before].first, Some(find.before()));
                prop_assert_eq!(searched.seen[change.after].first, Some(find.after()));
                prop_assert_eq!(searched.seen[change.before].again, Some(find.before()));
                prop_assert_eq!(searched.seen[change.after].again, Some(find.after()));
                let tried = |index: usize| searched.seen[index].first == Some(Answer::Unknown);
                prop_assert!((change.before + 1..change.after).all(tried));
            }
        }
    }

    #[test]
    fn answers_that_were_kept_lead_to_the_same_end(
        (find, _, history) in monotone(),
        kept in prop::collection::vec(any::<bool>(), 200),
    ) {
        // Any part of what a search learned, as an interruption or a discarded cell leaves it.
        let whole = steady(find, &history);
        let mut seen: Vec<Seen> =
            whole.seen.iter().zip(&kept).map(|(seen, kept)| if *kept { *seen } else { Seen::default() }).collect();
        let known = seen.iter().filter(|seen| seen.first.is_some()).count();
        let mut tests = 0;
        let conclusion = loop {
            match next_step(find, &seen) {
                Step::Test(index) => seen[index].first = Some(history[index]),
                Step::Recheck(index) => seen[index].again = Some(history[index]),
                Step::Done(conclusion) => break conclusion,
            }
            tests += 1;
        };
        prop_assert_eq!(&conclusion, &whole.conclusion);
        if known == whole.seen.iter().filter(|seen| seen.first.is_some()).count() {
            prop_assert_eq!(tests, 0);
        }
    }

    #[test]
    fn a_replayed_prefix_gives_the_same_next_step((find, _, history) in monotone(), cut in 0_usize..60) {
        let mut seen = vec![Seen::default(); history.len()];
        let mut steps = Vec::new();
        loop {
            let step = next_step(find, &seen);
            steps.push(step.clone());
            match step {
                Step::Test(index) => seen[index].first = Some(history[index]),
                Step::Recheck(index) => seen[index].again = Some(history[index]),
                Step::Done(_) => break,
            }
        }
        let cut = cut.min(steps.len() - 1);
        let mut replayed = vec![Seen::default(); history.len()];
        for step in &steps[..cut] {
            match step {
                Step::Test(index) => replayed[*index].first = Some(history[*index]),
                Step::Recheck(index) => replayed[*index].again = Some(history[*index]),
                Step::Done(_) => {}
            }
        }
        prop_assert_eq!(&next_step(find, &replayed), &steps[cut]);
        prop_assert!(tests_left(find, &replayed) > 0 || cut + 1 == steps.len());
    }

    #[test]
    fn a_test_that_differs_the_second_time_is_never_conclusive(
        (find, _, history) in monotone(),
        second in prop_oneof![Just(Answer::Good), Just(Answer::Bad), Just(Answer::Unknown)],
    ) {
        let searched = search(find, &history, |_| second);
        let change = found(&searched);
        // One of the two always differs, because they differ from each other.
        prop_assert!(!change.is_conclusive());
        let (side, again) = change.differed.unwrap();
        prop_assert_eq!(again, second);
        prop_assert!(side == change.before || side == change.after);
        prop_assert_ne!(searched.seen[side].first, Some(second));
    }
}

#[test]
fn a_long_block_that_cannot_be_told_is_stepped_over() {
    // 200 of 1000 nightlies that do not import, and a change elsewhere: log2 of 1000 is 10.
    let told = |index, boundary| match index {
        400..600 => Answer::Unknown,
        _ if index < boundary => Answer::Good,
        _ => Answer::Bad,
    };
    for (boundary, most) in [(100, 21), (399, 31), (601, 31), (900, 23)] {
        let history: Vec<Answer> = (0..1000).map(|index| told(index, boundary)).collect();
        let searched = steady(Find::Introduced, &history);
        assert_eq!((found(&searched).before, found(&searched).after), (boundary - 1, boundary));
        assert!(searched.tests <= most, "{} tests for a change at {boundary}", searched.tests);
    }
}

#[test]
fn an_older_change_among_what_was_told_is_said_to_contradict() {
    let mut seen = vec![Seen::default(); 7];
    for (index, answer) in history("gbggbbb").into_iter().enumerate() {
        seen[index] = Seen { first: Some(answer), again: Some(answer) };
    }
    let Step::Done(Conclusion::Change(change)) = next_step(Find::Introduced, &seen) else { panic!() };
    assert_eq!((change.before, change.after), (3, 4));
    assert_eq!(change.contradicting, [1]);
    assert!(change.is_conclusive(), "it is one change, and it was seen twice");
}

#[test]
fn two_neighbours_are_tested_twice_each() {
    let searched = steady(Find::Fixed, &history("bg"));
    assert_eq!(searched.tests, 4);
    assert!(found(&searched).is_conclusive());
}

#[test]
fn an_end_that_cannot_be_told_ends_the_search_at_once() {
    let searched = steady(Find::Introduced, &history("?gggb"));
    assert_eq!((searched.conclusion, searched.tests), (Conclusion::EndUnknown(0), 1));
}

#[test]
fn the_number_of_tests_left_is_that_of_a_search_without_holes() {
    let mut seen = vec![Seen::default(); 9];
    assert_eq!(tests_left(Find::Introduced, &seen), 2 + 3 + 2);
    seen[0].first = Some(Answer::Good);
    assert_eq!(tests_left(Find::Introduced, &seen), 1 + 3 + 2);
    seen[8].first = Some(Answer::Bad);
    assert_eq!(tests_left(Find::Introduced, &seen), 3 + 2);
    seen[4].first = Some(Answer::Bad);
    assert_eq!(tests_left(Find::Introduced, &seen), 2 + 2);
}
