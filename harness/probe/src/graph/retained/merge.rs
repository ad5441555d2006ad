//! Storages that are held alike become one entry.

use std::collections::HashMap;

use torchleak_protocol::{Hop, Retention, Root, RootKind};

use super::roots::Reach;
use super::{autograd, nearest};
use crate::graph::blame::PathFingerprints;
use crate::graph::edges::Namer;
use crate::graph::hops::{name_path, signature};
use crate::graph::labels::Labels;
use crate::graph::nodes::describe;
use crate::graph::read::Readers;
use crate::graph::tensors::Tensors;
use crate::graph::traverse::Graph;

/// Paths are named before it is known which of them get the same name, for at most this many times
/// the entries that were asked for.
const NAMED_PER_ENTRY: usize = 8;

/// Everything that is known before names are.
pub struct Facts<'a> {
    pub graph: &'a Graph,
    pub reach: &'a Reach,
    pub tensors: &'a Tensors,
}

/// The entries by bytes, and how many were left out.
pub fn retentions(
    facts: &Facts<'_>,
    readers: &Readers<'_>,
    limit: usize,
    show_values: bool,
) -> (Vec<Retention>, u64) {
    let mut groups = facts.alike(readers);
    groups.sort_by_cached_key(|group| (std::cmp::Reverse(facts.bytes(group)), group[0]));
    let named = limit.saturating_mul(NAMED_PER_ENTRY).min(groups.len());
    let mut left_out = groups.len() - named;
    groups.truncate(named);
    let namer = Namer { readers, show_values };
    let mut merged: Vec<Retention> = Vec::new();
    let mut known: HashMap<(String, u32), usize> = HashMap::new();
    for group in groups {
        let retention = facts.name(&namer, &group);
        let key = (retention.signature.clone(), facts.tensors.all[group[0] as usize].info);
        match known.get(&key) {
            Some(&index) => {
                merged[index].count += retention.count;
                merged[index].bytes += retention.bytes;
            }
            None => {
                known.insert(key, merged.len());
                merged.push(retention);
            }
        }
    }
    merged.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.signature.cmp(&b.signature)));
    left_out += merged.len().saturating_sub(limit);
    merged.truncate(limit);
    (merged, left_out as u64)
}

impl Facts<'_> {
    /// One tensor of each storage, those together that are and are held alike.
    fn alike(&self, readers: &Readers<'_>) -> Vec<Vec<u32>> {
        let mut labels = Labels::new(readers);
        let mut paths = PathFingerprints::new(self.graph.len());
        let mut by_key: HashMap<(u32, u64), usize> = HashMap::new();
        let mut groups: Vec<Vec<u32>> = Vec::new();
        for index in nearest(self.tensors, self.reach) {
            let tensor = &self.tensors.all[index as usize];
            let path = paths.of(self.graph, self.reach.search(), tensor.node, &mut labels);
            let group = *by_key.entry((tensor.info, path)).or_insert_with(|| {
                groups.push(Vec::new());
                groups.len() - 1
            });
            groups[group].push(index);
        }
        groups
    }

    /// Each storage is in one group, once.
    fn bytes(&self, group: &[u32]) -> u64 {
        let storages = group.iter().filter_map(|&index| self.tensors.all[index as usize].storage);
        storages.map(|storage| self.tensors.storages[storage as usize]).sum()
    }

    fn name(&self, namer: &Namer<'_, '_>, group: &[u32]) -> Retention {
        let tensor = &self.tensors.all[group[0] as usize];
        let (nodes, kind) = self.reach.path(tensor.node);
        let path: Vec<Hop> =
            name_path(self.graph, namer, &nodes).into_iter().map(|named| named.hop).collect();
        let root = self.root(namer, nodes[0], kind);
        // What is said of a C++ holder is stable; what is said of the others is in the path.
        let holder = if root.kind == RootKind::Autograd { root.description.clone() } else { word(root.kind) };
        Retention {
            signature: format!("{holder}: {}", signature(path.iter())),
            root,
            path,
            tensor: self.tensors.infos[tensor.info as usize].clone(),
            count: group.len() as u64,
            bytes: self.bytes(group),
        }
    }

    fn root(&self, namer: &Namer<'_, '_>, node: u32, kind: RootKind) -> Root {
        // SAFETY: the nodes of a graph are live.
        let object = unsafe { namer.readers.borrow(self.graph.object(node)) };
        let facts = self.graph.facts(node);
        let described = describe(namer.readers, facts, &object, false);
        let name = described.name.unwrap_or(described.type_name);
        let description = match kind {
            RootKind::Module => format!("module {name}"),
            RootKind::Type => format!("class {name}"),
            RootKind::Frame => match described.location {
                Some(location) => format!("running frame {name} ({location})"),
                None => format!("running frame {name}"),
            },
            RootKind::Thread => "state of a thread".to_owned(),
            RootKind::Garbage => "garbage that no collection has found yet".to_owned(),
            RootKind::Autograd | RootKind::Cpp => {
                if let Some(description) = autograd::holder(self.graph, namer.readers, node) {
                    return Root { kind: RootKind::Autograd, description };
                }
                "held by C++".to_owned()
            }
        };
        Root { kind, description }
    }
}

fn word(kind: RootKind) -> String {
    match kind {
        RootKind::Module => "module",
        RootKind::Frame => "frame",
        RootKind::Type => "type",
        RootKind::Thread => "thread",
        RootKind::Autograd => "autograd",
        RootKind::Cpp => "cpp",
        RootKind::Garbage => "garbage",
    }
    .to_owned()
}
