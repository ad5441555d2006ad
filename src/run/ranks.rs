//! The ranks of a case that has several: each is judged like a case of its own, and all of them make
//! the case's verdict.

use crate::case::Verdict;
use crate::cycles::Diagnosis;
use crate::measure::{Planted, Recording};
use crate::verdict::{Control, Judgement};

/// One rank.
#[derive(Debug, Clone)]
pub struct RankOutcome {
    pub judgement: Judgement,
    pub diagnosis: Option<Diagnosis>,
}

/// The case's verdict: the one that all ranks share, with the numbers of rank 0. Ranks of which one
/// leaks and the other does not are no verdict.
pub fn merged(first: &Judgement, others: &[Judgement]) -> Judgement {
    let find = |is_told: &dyn Fn(&Judgement) -> bool| {
        std::iter::once(first).chain(others).enumerate().find(|(_, judgement)| is_told(judgement))
    };
    let (verdict, reason) = if let Some((rank, failed)) = find(&|one| one.verdict == Verdict::Error) {
        (Verdict::Error, format!("rank {rank}: {}", failed.reason))
    } else if let Some((rank, odd)) = find(&|one| one.verdict != first.verdict) {
        let differ = format!("the ranks differ: rank 0 is {} and rank {rank} {}", first.verdict, odd.verdict);
        (Verdict::Inconclusive, format!("{differ}; rank 0: {}; rank {rank}: {}", first.reason, odd.reason))
    } else {
        let all = others.len() + 1;
        (first.verdict, format!("on each of {all} ranks, with the figures of rank 0: {}", first.reason))
    };
    Judgement { verdict, reason, numbers: first.numbers.clone() }
}

/// What a rank planted itself, in each of its arms, if the control of the host was detected: that one
/// vouches for the counters and the rules, and the rank's own for its processes.
pub fn control(of_host: &Control, arms: &[(&str, &Recording)]) -> Control {
    if let Control::Missed(_) = of_host {
        return of_host.clone();
    }
    let missed = arms.iter().find_map(|(name, recording)| match &recording.planted {
        Some(Planted { detected: true, .. }) => None,
        Some(Planted { reason, .. }) => Some(format!("in the {name} arm {reason}")),
        None => Some(format!("the {name} arm planted none")),
    });
    missed.map_or(Control::Detected, Control::Missed)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn judged(verdict: Verdict) -> Judgement {
        Judgement { verdict, reason: format!("it is {verdict}"), numbers: None }
    }

    #[rstest]
    #[case(&[Verdict::Fixed; 2], Verdict::Fixed, "on each of 2 ranks, with the figures of rank 0: it is fixed")]
    #[case(
        &[Verdict::Fixed, Verdict::Fixed, Verdict::Reproduced],
        Verdict::Inconclusive,
        "the ranks differ: rank 0 is fixed and rank 2 reproduced; rank 0: it is fixed; rank 2: it is reproduced"
    )]
    #[case(&[Verdict::Reproduced, Verdict::Error], Verdict::Error, "rank 1: it is error")]
    fn only_what_all_ranks_share_is_the_verdict(
        #[case] ranks: &[Verdict],
        #[case] verdict: Verdict,
        #[case] reason: &str,
    ) {
        let judged: Vec<Judgement> = ranks.iter().map(|verdict| judged(*verdict)).collect();
        assert_eq!(
            merged(&judged[0], &judged[1..]),
            Judgement { verdict, reason: reason.to_owned(), numbers: None }
        );
    }

    #[test]
    fn every_arm_of_a_rank_and_its_host_must_have_detected_what_was_planted() {
        let planted = |detected| Recording {
            planted: Some(Planted { detected, reason: "a collect found nothing".to_owned() }),
            ..Recording::default()
        };
        let (found, missed, silent) = (planted(true), planted(false), Recording::default());
        let of = |host: &Control, second: &Recording| match control(
            host,
            &[("uncollected", &found), ("collected", second)],
        ) {
            Control::Detected => "detected".to_owned(),
            Control::Missed(reason) => reason,
        };
        assert_eq!(of(&Control::Detected, &found), "detected");
        assert_eq!(of(&Control::Missed("the host's".to_owned()), &found), "the host's");
        assert_eq!(of(&Control::Detected, &missed), "in the collected arm a collect found nothing");
        assert_eq!(of(&Control::Detected, &silent), "the collected arm planted none");
    }
}
