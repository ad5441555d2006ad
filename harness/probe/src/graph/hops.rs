//! Paths of nodes as hops that a person can read.

use torchleak_protocol::{Edge, EdgeKind, Hop, Node, NodeKind};

use super::edges::Namer;
use super::nodes::describe;
use super::traverse::Graph;

/// A path with more nodes than this is shown without its middle.
const LONGEST: usize = 80;
const SHOWN_AT_EACH_END: usize = 32;

/// A hop and the last of the references that it stands for.
pub struct NamedHop {
    pub hop: Hop,
    pub reference: (u32, u32),
}

/// Names the path `nodes`. The last node is where the last hop leads and has no hop of its own.
pub fn name_path(graph: &Graph, namer: &Namer<'_, '_>, nodes: &[u32]) -> Vec<NamedHop> {
    if nodes.len() <= LONGEST {
        return name_all(graph, namer, nodes);
    }
    let (head, tail) = (&nodes[..SHOWN_AT_EACH_END], &nodes[nodes.len() - SHOWN_AT_EACH_END..]);
    let mut hops = name_all(graph, namer, head);
    let (last, first) = (head[head.len() - 1], tail[0]);
    // SAFETY: the nodes of a graph are live.
    let object = unsafe { namer.readers.borrow(graph.object(last)) };
    hops.push(NamedHop {
        hop: Hop {
            node: describe(namer.readers, graph.facts(last), &object, namer.show_values),
            edge: Edge {
                kind: EdgeKind::Internal,
                label: format!("... {} references", nodes.len() - 2 * SHOWN_AT_EACH_END + 1),
            },
        },
        reference: (last, first),
    });
    hops.extend(name_all(graph, namer, tail));
    hops
}

fn name_all(graph: &Graph, namer: &Namer<'_, '_>, nodes: &[u32]) -> Vec<NamedHop> {
    // SAFETY: the nodes of a graph are live.
    let objects: Vec<_> =
        nodes.iter().map(|&node| unsafe { namer.readers.borrow(graph.object(node)) }).collect();
    let mut hops = Vec::new();
    let mut at = 0;
    while at + 1 < nodes.len() {
        let (edge, references) = namer.step(graph.kind(nodes[at]), &objects[at..]);
        let end = (at + references).min(nodes.len() - 1);
        hops.push(NamedHop {
            hop: Hop {
                node: describe(namer.readers, graph.facts(nodes[at]), &objects[at], namer.show_values),
                edge,
            },
            reference: (nodes[end - 1], nodes[end]),
        });
        at = end;
    }
    hops
}

/// A path without what differs between alike ones: no positions, no lengths, no files.
pub fn signature<'a>(hops: impl Iterator<Item = &'a Hop>) -> String {
    let parts: Vec<String> = hops
        .map(|hop| {
            let label = if hop.edge.kind == EdgeKind::Index { "[]" } else { &hop.edge.label };
            format!("{} {}", subject(&hop.node), phrase(hop.edge.kind, label))
        })
        .collect();
    parts.join(" -> ")
}

fn subject(node: &Node) -> String {
    match (&node.name, node.kind) {
        (Some(name), NodeKind::Type) => format!("type {name}"),
        (Some(name), _) => format!("{} {name}", node.type_name),
        (None, _) => node.type_name.clone(),
    }
}

fn phrase(kind: EdgeKind, label: &str) -> String {
    match kind {
        EdgeKind::Closure => format!("closure {label}"),
        EdgeKind::Local => format!("local {label}"),
        EdgeKind::Default | EdgeKind::KwDefault => format!("default {label}"),
        _ => label.to_owned(),
    }
}

/// Whether the component has no cycle left without one reference.
pub fn is_acyclic_without(graph: &Graph, members: &[u32], reference: (u32, u32)) -> bool {
    let local: std::collections::HashMap<u32, usize> =
        members.iter().enumerate().map(|(position, &node)| (node, position)).collect();
    let targets = |node: u32| {
        graph
            .targets(node)
            .iter()
            .filter(move |&&target| (node, target) != reference)
            .filter_map(|target| local.get(target).copied())
    };
    // Nodes to which nothing refers any more are taken away until none is left, or a cycle is.
    let mut referrers = vec![0_usize; members.len()];
    for &node in members {
        targets(node).for_each(|target| referrers[target] += 1);
    }
    let mut free: Vec<usize> = (0..members.len()).filter(|&position| referrers[position] == 0).collect();
    let mut taken = 0;
    while let Some(position) = free.pop() {
        taken += 1;
        for target in targets(members[position]) {
            referrers[target] -= 1;
            if referrers[target] == 0 {
                free.push(target);
            }
        }
    }
    taken == members.len()
}
