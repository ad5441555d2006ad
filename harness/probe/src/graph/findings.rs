//! Components that look alike become one finding.

use std::collections::{HashMap, HashSet};

use torchleak_protocol::{Finding, Hop, TensorGroup};

use super::blame::Blame;
use super::edges::Namer;
use super::hops::{is_acyclic_without, name_path, signature};
use super::scc::Components;
use super::tensors::Tensors;
use super::traverse::Graph;
use super::unsettled::Held;

/// A finding shows so many groups of tensors; if there are more, their paths no longer tell them apart.
const MOST_GROUPS: usize = 16;
/// Cycles are named before it is known which of them get the same name, for at most this many times
/// the findings that were asked for.
const NAMED_PER_FINDING: usize = 8;
/// Whether an edge is the only one to cut is looked at in components up to this size.
const LARGEST_TO_CUT: usize = 50_000;

/// Everything that is known before names are.
pub struct Facts<'a> {
    pub graph: &'a Graph,
    pub components: &'a Components,
    pub tensors: &'a Tensors,
    pub blame: &'a Blame,
}

/// Components of one fingerprint, later of one signature.
#[derive(Default)]
struct Class {
    components: Vec<u32>,
    /// Indices into [`Tensors::all`].
    tensors: Vec<u32>,
}

/// The findings by bytes, with their storages, and how many were left out.
pub fn findings(facts: &Facts<'_>, namer: &Namer<'_, '_>, most: usize) -> (Vec<Finding>, Vec<Held>, u64) {
    let mut classes = classes(facts);
    let bytes = |class: &Class| facts.bytes(&class.tensors);
    classes.sort_by_cached_key(|class| (std::cmp::Reverse(bytes(class)), class.components[0]));
    let named = most.saturating_mul(NAMED_PER_FINDING).min(classes.len());
    let mut left_out = classes.len() - named;
    classes.truncate(named);

    let mut findings: Vec<(Finding, Class)> = Vec::new();
    let mut by_signature: HashMap<String, usize> = HashMap::new();
    for class in classes {
        let finding = facts.name_cycle(namer, &class);
        match by_signature.get(&finding.signature) {
            Some(&index) => {
                let (known, members) = &mut findings[index];
                known.objects = known.objects.min(finding.objects);
                known.count += finding.count;
                known.feeds_others |= finding.feeds_others;
                known.breaking_edge_suffices &= finding.breaking_edge_suffices;
                members.components.extend(class.components);
                members.tensors.extend(class.tensors);
            }
            None => {
                by_signature.insert(finding.signature.clone(), findings.len());
                findings.push((finding, class));
            }
        }
    }
    for (finding, class) in &mut findings {
        finding.exclusive_bytes = facts.bytes(&class.tensors);
    }
    findings.sort_by(|(a, _), (b, _)| {
        b.exclusive_bytes.cmp(&a.exclusive_bytes).then_with(|| a.signature.cmp(&b.signature))
    });
    left_out += findings.len().saturating_sub(most);
    findings.truncate(most);
    let shown = findings.into_iter().map(|(mut finding, class)| {
        let (groups, storages) = facts.groups(namer, &class.tensors).into_iter().unzip();
        finding.groups = groups;
        (finding, Held { all: facts.storages(&class.tensors), groups: storages })
    });
    let (findings, held) = shown.unzip();
    (findings, held, left_out as u64)
}

fn classes(facts: &Facts<'_>) -> Vec<Class> {
    let mut by_fingerprint: HashMap<u64, usize> = HashMap::new();
    let mut classes: Vec<Class> = Vec::new();
    let mut class_of = Vec::with_capacity(facts.components.len());
    for (component, fingerprint) in (0..).zip(&facts.blame.fingerprints) {
        let class = *by_fingerprint.entry(*fingerprint).or_insert_with(|| {
            classes.push(Class::default());
            classes.len() - 1
        });
        classes[class].components.push(component);
        class_of.push(class);
    }
    for (tensor, owner) in (0..).zip(&facts.blame.owners) {
        if let Some(owner) = owner {
            classes[class_of[*owner as usize]].tensors.push(tensor);
        }
    }
    classes
}

impl Facts<'_> {
    /// The storages of some tensors, each once.
    fn storages(&self, tensors: &[u32]) -> Vec<u32> {
        let storages: HashSet<u32> =
            tensors.iter().filter_map(|&tensor| self.tensors.all[tensor as usize].storage).collect();
        storages.into_iter().collect()
    }

    /// Bytes of the storages of some tensors, each counted once.
    fn bytes(&self, tensors: &[u32]) -> u64 {
        self.storages(tensors).iter().map(|&storage| self.tensors.storages[storage as usize]).sum()
    }

    fn name_cycle(&self, namer: &Namer<'_, '_>, class: &Class) -> Finding {
        let size = |&component: &u32| self.components.members(component as usize).len();
        let example = *class.components.iter().min_by_key(|component| size(component)).unwrap_or(&0);
        let members = self.components.members(example as usize);
        let mut closed = self.blame.cycles[example as usize].clone();
        closed.push(closed[0]);
        let mut hops = name_path(self.graph, namer, &closed);
        let mutable = |hop: &super::hops::NamedHop| hop.hop.edge.kind.is_mutable();
        let cut = hops.iter().position(|hop| {
            mutable(hop)
                && members.len() <= LARGEST_TO_CUT
                && is_acyclic_without(self.graph, members, hop.reference)
        });
        let breaking = cut.or_else(|| hops.iter().position(mutable));
        // The place for a repair is where an explanation begins.
        hops.rotate_left(breaking.unwrap_or(0));
        let cycle: Vec<Hop> = hops.into_iter().map(|named| named.hop).collect();
        Finding {
            signature: signature(cycle.iter()),
            count: class.components.len() as u64,
            objects: members.len() as u64,
            cycle,
            groups: Vec::new(),
            exclusive_bytes: 0,
            breaking_edge: breaking.map(|_| 0),
            breaking_edge_suffices: cut.is_some(),
            feeds_others: class.components.iter().any(|&component| self.blame.feeds[component as usize]),
        }
    }

    fn groups(&self, namer: &Namer<'_, '_>, tensors: &[u32]) -> Vec<(TensorGroup, Vec<u32>)> {
        let mut alike = self.group_by(tensors, |tensor| self.blame.path_fingerprints[tensor as usize]);
        if alike.len() > MOST_GROUPS {
            alike = self.group_by(tensors, |_| 0);
        }
        let bytes = |group: &Vec<u32>| self.bytes(group);
        alike.sort_by_cached_key(|group| (std::cmp::Reverse(bytes(group)), group[0]));
        let mut merged: Vec<(String, Vec<Hop>, Vec<u32>)> = Vec::new();
        for group in alike.into_iter().take(MOST_GROUPS) {
            let nodes = self.blame.path(self.tensors.all[group[0] as usize].node);
            let path: Vec<Hop> =
                name_path(self.graph, namer, &nodes).into_iter().map(|named| named.hop).collect();
            let text = signature(path.iter());
            let info = |group: &[u32]| self.tensors.all[group[0] as usize].info;
            match merged.iter_mut().find(|(known, _, other)| *known == text && info(other) == info(&group)) {
                Some((_, _, other)) => other.extend(group),
                None => merged.push((text, path, group)),
            }
        }
        let group = |(_, path, group): (String, Vec<Hop>, Vec<u32>)| {
            let told = TensorGroup {
                path,
                tensor: self.tensors.infos[self.tensors.all[group[0] as usize].info as usize].clone(),
                count: group.len() as u64,
                bytes: self.bytes(&group),
            };
            (told, self.storages(&group))
        };
        merged.into_iter().map(group).collect()
    }

    /// Tensors of equal description and key, in the order of the first of each.
    fn group_by(&self, tensors: &[u32], key: impl Fn(u32) -> u64) -> Vec<Vec<u32>> {
        let mut by_key: HashMap<(u32, u64), usize> = HashMap::new();
        let mut groups: Vec<Vec<u32>> = Vec::new();
        for &tensor in tensors {
            let group =
                *by_key.entry((self.tensors.all[tensor as usize].info, key(tensor))).or_insert_with(|| {
                    groups.push(Vec::new());
                    groups.len() - 1
                });
            groups[group].push(tensor);
        }
        groups
    }
}
