//! Joins what several machines found into one matrix.

use std::collections::BTreeMap;

use pep440_rs::Version;
use torchleak_protocol::Device;

use super::{Cell, Part, Share, minor};

/// How many of a long list are named.
const NAMED: usize = 8;

/// The cells of all parts.
#[derive(Debug)]
pub struct Joined {
    /// Column by column, Python by Python and the oldest version first.
    pub cells: Vec<Cell>,
    /// What keeps this from being the whole matrix: cells of which machines say different things, and parts that are
    /// not there.
    pub notes: Vec<String>,
}

/// Joins parts. A cell that several parts have is one, and if they disagree the first is kept and all are told.
pub fn merge(parts: Vec<Part>) -> Joined {
    let mut notes = missing(&parts);
    let (mut documents, runs): (Vec<Part>, Vec<Part>) =
        parts.into_iter().partition(|part| part.share.is_some());
    // Whatever the order of the files, the cases then come in the order in which they were asked for.
    documents.sort_by(|one, other| one.share.cmp(&other.share));
    let mut cells: Vec<Cell> = Vec::new();
    let mut add = |cell: Cell| match cells.iter_mut().find(|known| is_same(known, &cell)) {
        None => cells.push(cell),
        Some(known) => notes.extend(join(known, cell)),
    };
    documents.into_iter().flat_map(|part| part.cells).for_each(&mut add);
    runs.into_iter().flat_map(|part| part.cells).for_each(&mut add);
    cells.sort_by_cached_key(place);
    Joined { cells, notes }
}

/// Where the column of a cell stands among the others.
fn place(cell: &Cell) -> (Option<Version>, bool, Option<Version>) {
    (minor(&cell.python).parse().ok(), cell.device == Device::Cuda, cell.label.parse().ok())
}

/// Whether two cells are one place of the matrix. A run folder does not know by which name its build was selected, but
/// the cell of the document names the folder.
fn is_same(one: &Cell, other: &Cell) -> bool {
    let is_column = one.label == other.label || one.torch == other.torch && is_same_run(one, other);
    is_column
        && one.case == other.case
        && one.device == other.device
        && minor(&one.python) == minor(&other.python)
}

/// Whether both are of one run, whose folder may have been copied from where it was written.
fn is_same_run(one: &Cell, other: &Cell) -> bool {
    let name = |cell: &Cell| cell.run_dir.as_ref().and_then(|path| path.file_name().map(ToOwned::to_owned));
    name(one).is_some() && name(one) == name(other)
}

/// Takes another cell of the same place in, and says if the two disagree.
fn join(known: &mut Cell, other: Cell) -> Option<String> {
    if is_same_run(known, &other) && known.verdict == other.verdict {
        // The last is where the folder is now.
        known.run_dir = other.run_dir;
        return None;
    }
    let has_nothing_to_say = |cell: &Cell| cell.verdict.is_none();
    if has_nothing_to_say(known) || has_nothing_to_say(&other) {
        if has_nothing_to_say(known) {
            *known = other;
        }
        return None;
    }
    if known.verdict == other.verdict && known.expected == other.expected {
        return None;
    }
    let side = |cell: &Cell| {
        let verdict = cell.verdict.map_or("-", |verdict| verdict.word());
        let expected = cell.expected.map_or(String::new(), |expected| format!(", expected {expected},"));
        let folder = cell.run_dir.as_ref().map_or(String::new(), |path| format!(" in {}", path.display()));
        format!("{verdict}{expected} on {} with Python {}{folder}", cell.torch, cell.python)
    };
    let column = format!("{}, {}, Python {}", known.case, known.label, minor(&known.python));
    Some(format!("{column}: the parts disagree: {}; and {}", side(known), side(&other)))
}

/// Says which parts of which matrix are not there, and which are not whole.
fn missing(parts: &[Part]) -> Vec<String> {
    let mut notes = Vec::new();
    let mut matrices: BTreeMap<(&str, usize, usize), Vec<&Share>> = BTreeMap::new();
    for part in parts {
        let Some(share) = &part.share else { continue };
        let wanted = share.partition.range(share.cells).len();
        // A part that was broken off may have been run again into another file.
        if !parts.iter().any(|other| other.share == part.share && other.cells.len() >= wanted) {
            let (path, is) = (part.path.display(), part.cells.len());
            notes.push(format!("{path}: {is} of the {wanted} cells of {} were run", share.partition));
        }
        matrices.entry((&share.matrix, share.partition.of, share.cells)).or_default().push(share);
    }
    for ((_, of, cells), shares) in matrices {
        let has = |part: usize| shares.iter().any(|share| share.partition.part == part);
        let missing: Vec<String> =
            (1..=of).filter(|part| !has(*part)).take(NAMED + 1).map(|part| part.to_string()).collect();
        if !missing.is_empty() {
            let more = if missing.len() > NAMED { " and more" } else { "" };
            let named = missing[..missing.len().min(NAMED)].join(", ");
            notes.push(format!(
                "of the {of} parts of a matrix of {cells} cells these are missing: {named}{more}"
            ));
        }
    }
    notes
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::slice::from_ref;

    use proptest::prelude::*;

    use super::*;
    use crate::case::{Partition, Verdict};

    fn cell(case: &str, label: &str, verdict: Option<Verdict>, run: &str) -> Cell {
        Cell {
            case: case.to_owned(),
            label: label.to_owned(),
            torch: format!("{label}+cpu"),
            torch_commit: None,
            overlay: None,
            python: "3.11.7".to_owned(),
            device: Device::Cpu,
            verdict,
            reason: String::new(),
            expected: None,
            ok: verdict.is_some(),
            growth: None,
            seconds: 0.0,
            run_dir: Some(PathBuf::from(run)),
            cached: false,
        }
    }

    fn share(part: usize, of: usize, cells: usize) -> Option<Share> {
        Some(Share { matrix: "a".to_owned(), partition: Partition { part, of }, cells })
    }

    fn part(share: Option<Share>, cells: &[Cell]) -> Part {
        Part { path: PathBuf::from("part.json"), share, cells: cells.to_vec() }
    }

    proptest! {
        #[test]
        fn however_a_matrix_is_parted_and_its_parts_are_ordered_they_join_to_the_whole(
            of in 1..12_usize,
            order in Just((0..12_usize).collect::<Vec<_>>()).prop_shuffle(),
            again in 0..12_usize,
        ) {
            let whole: Vec<Cell> = ["2.6.0", "2.10.0.dev20260101", "2.10.0"]
                .iter()
                .flat_map(|label| ["b", "a", "c"].map(|case| cell(case, label, Some(Verdict::Fixed), label)))
                .collect();
            let one = |part: usize| {
                let share = share(part, of, whole.len());
                let range = share.as_ref().unwrap().partition.range(whole.len());
                self::part(share, &whole[range])
            };
            let mut parts: Vec<Part> = order.iter().filter(|part| **part < of).map(|part| one(part + 1)).collect();
            // Some file is named twice.
            parts.push(one(again % of + 1));
            let joined = merge(parts);
            prop_assert_eq!(joined.cells, whole);
            prop_assert_eq!(joined.notes, Vec::<String>::new());
        }
    }

    #[test]
    fn a_run_folder_is_the_cell_that_names_it_whatever_its_version_is_called() {
        let selected =
            Cell { label: "2.8.0+cpu".into(), ..cell("a", "2.8.0", Some(Verdict::Fixed), "/there/runs/1") };
        let folder = cell("a", "2.8.0", Some(Verdict::Fixed), "/here/runs/1");
        let joined = merge(vec![part(None, from_ref(&folder)), part(share(1, 1, 1), from_ref(&selected))]);
        assert_eq!(joined.cells, [Cell { run_dir: folder.run_dir, ..selected }]);
        assert_eq!(joined.notes, Vec::<String>::new());
    }

    #[test]
    fn a_cell_that_says_something_wins_over_one_that_could_not_be_had() {
        let (nothing, fixed) =
            (cell("a", "2.8.0", None, "/1"), cell("a", "2.8.0", Some(Verdict::Fixed), "/2"));
        for cells in [[nothing.clone(), fixed.clone()], [fixed.clone(), nothing]] {
            let joined = merge(vec![part(None, &cells)]);
            assert_eq!((joined.cells, joined.notes.len()), (vec![fixed.clone()], 0));
        }
    }

    #[test]
    fn what_machines_see_differently_is_told_and_devices_and_pythons_are_not_compared() {
        let fixed = cell("a", "2.8.0", Some(Verdict::Fixed), "/1");
        let leaks = Cell { verdict: Some(Verdict::Reproduced), run_dir: None, ..fixed.clone() };
        let others = [
            Cell { device: Device::Cuda, ..leaks.clone() },
            Cell { python: "3.12.1".into(), ..leaks.clone() },
        ];
        let joined = merge(vec![part(None, from_ref(&fixed)), part(None, &others)]);
        assert_eq!((joined.cells.len(), joined.notes.len()), (3, 0));
        let joined = merge(vec![part(None, &[fixed]), part(None, &[leaks])]);
        assert_eq!(
            joined.notes,
            [
                "a, 2.8.0, Python 3.11: the parts disagree: fixed on 2.8.0+cpu with Python 3.11.7 in /1; and reproduced on \
              2.8.0+cpu with Python 3.11.7"
            ]
        );
    }

    #[test]
    fn parts_that_are_missing_or_broken_off_are_told() {
        let cells = [cell("a", "2.8.0", Some(Verdict::Fixed), "/1")];
        assert_eq!(
            merge(vec![part(share(3, 3, 6), &cells)]).notes,
            [
                "part.json: 1 of the 2 cells of part 3 of 3 were run",
                "of the 3 parts of a matrix of 6 cells these are missing: 1, 2"
            ]
        );
        // Whatever numbers a document has, they are counted in no time.
        let notes = merge(vec![part(share(1, usize::MAX, usize::MAX), &cells)]).notes;
        assert!(notes[0].ends_with("these are missing: 2, 3, 4, 5, 6, 7, 8, 9 and more"), "{notes:?}");
        assert_eq!(merge(vec![part(share(0, 0, 0), &[])]).notes, Vec::<String>::new());
    }
}
