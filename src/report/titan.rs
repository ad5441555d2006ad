//! torchtitan's own log lines, so that whatever reads its logs reads ours.

use std::fmt::Write;

use torchleak_protocol::{ArmFacts, StepRecord};

use crate::measure::Recording;
use crate::run::CaseOutcome;

const GIB: f64 = (1_u64 << 30) as f64;

/// Every measured arm of a case, and every rank of it, each under a heading, and the verdict.
pub fn case_lines(outcome: &CaseOutcome) -> String {
    let mut text = String::new();
    for arm in &outcome.arms {
        for (rank, recording) in arm.recordings().enumerate() {
            if recording.steps.is_empty() {
                continue;
            }
            let which = if arm.peers.is_empty() { String::new() } else { format!(" rank {rank}") };
            let _ = writeln!(text, "# {} {}{which}", outcome.name, arm.name);
            recording_lines(recording, &mut text);
        }
    }
    let verdict = outcome.verdict().map_or_else(|| "no verdict".to_owned(), |verdict| verdict.to_string());
    let _ = writeln!(text, "# {} verdict: {verdict}: {}", outcome.name, outcome.reason());
    if let Some(native) = &outcome.native {
        let _ = writeln!(text, "# {} native control: {}", outcome.name, native.reason);
    }
    text
}

fn recording_lines(recording: &Recording, text: &mut String) {
    let facts = recording.facts.as_ref();
    for record in &recording.steps {
        let _ = writeln!(text, "{}", step_line(record, facts));
        if let Some(collected) = &record.collected {
            let _ = writeln!(
                text,
                "[GC] Forced collection of generation {} took {:.2} seconds",
                collected.generation, collected.seconds
            );
        }
    }
}

/// One step line. A field that is not known is left out, as torchtitan of mid-2025 left out
/// `grad_norm`; `mfu` is `N/A` without the device's peak.
fn step_line(record: &StepRecord, facts: Option<&ArmFacts>) -> String {
    let mut fields = vec![format!("step: {:2}", record.step)];
    if let Some(loss) = record.loss {
        fields.push(format!("loss: {loss:8.5}"));
    }
    if let Some(norm) = record.grad_norm {
        fields.push(format!("grad_norm: {norm:7.4}"));
    }
    if let Some(peak) = peak_reserved(record) {
        let percent = facts
            .and_then(|facts| facts.device_memory)
            .map(|total| format!("({:.2}%)", 100.0 * peak as f64 / total as f64));
        fields.push(format!("memory: {:5.2}GiB{}", peak as f64 / GIB, percent.unwrap_or_default()));
    }
    if let Some(tokens) = record.tokens {
        let tps = tokens as f64 / record.seconds;
        fields.push(format!("tps: {}", grouped(tps, 0)));
        if let Some(flops) = facts.and_then(|facts| facts.flops_per_token) {
            let tflops = flops * tps / 1e12;
            let peak = facts.and_then(|facts| peak_flops(&facts.device_name));
            fields.push(format!("tflops: {}", grouped(tflops, 2)));
            fields.push(peak.map_or_else(
                || "mfu: N/A".to_owned(),
                |peak| format!("mfu: {:.2}%", 100.0 * flops * tps / peak),
            ));
        }
    }
    fields.join("  ")
}

/// Peak reserved memory since the last line; on a CPU, which reserves nothing, the peak resident set.
fn peak_reserved(record: &StepRecord) -> Option<u64> {
    record.memory.device.as_ref().map(|device| device.peak_reserved).or(record.memory.peak_rss)
}

/// A number with commas between thousands and so many decimals: Python's `{:,.2f}`.
fn grouped(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    let (whole, fraction) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut grouped = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + fraction
}

/// Peak dense BF16 operations per second by device name, from the makers' data sheets.
fn peak_flops(device: &str) -> Option<f64> {
    const PEAKS: [(&str, f64); 9] = [
        ("A100", 312e12),
        ("H100 NVL", 835e12),
        ("H100 PCIe", 756e12),
        ("H100", 989e12),
        ("H200", 989e12),
        ("B200", 2.25e15),
        ("MI300X", 1300e12),
        ("MI250X", 191.5e12),
        ("L40S", 362e12),
    ];
    PEAKS.iter().find(|(name, _)| device.contains(name)).map(|(_, peak)| *peak)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use torchleak_protocol::{Census, DeviceMemory, Memory};

    use super::*;

    fn record() -> StepRecord {
        StepRecord {
            step: 1,
            loss: Some(12.2713),
            grad_norm: Some(3.59),
            seconds: 0.5,
            tokens: Some(8192),
            memory: Memory {
                device: Some(DeviceMemory { peak_reserved: 45_269_555_282, ..DeviceMemory::default() }),
                ..Memory::default()
            },
            census: Census::new(),
            collected: None,
            loss_is: None,
            foreign_collections: 0,
        }
    }

    fn facts(device: &str) -> ArmFacts {
        ArmFacts {
            python: String::new(),
            torch: String::new(),
            torch_commit: None,
            device_name: device.to_owned(),
            device_memory: Some(100 << 30),
            gc_enabled: false,
            frozen_objects: 0,
            threads: 1,
            allocator_settings: Vec::new(),
            memory: Memory::default(),
            flops_per_token: Some(3e10),
        }
    }

    #[test]
    fn a_step_line_has_torchtitans_fields_and_widths() {
        assert_eq!(
            step_line(&record(), Some(&facts("NVIDIA H100 80GB HBM3"))),
            "step:  1  loss: 12.27130  grad_norm:  3.5900  memory: 42.16GiB(42.16%)  tps: 16,384  tflops: 491.52  \
             mfu: 49.70%"
        );
    }

    #[test]
    fn mfu_is_not_available_without_a_known_peak() {
        assert!(step_line(&record(), Some(&facts("cpu"))).ends_with("  tflops: 491.52  mfu: N/A"));
    }

    #[test]
    fn a_percentage_of_an_unknown_total_is_left_out() {
        let unknown = ArmFacts { device_memory: None, ..facts("cpu") };
        assert!(step_line(&record(), Some(&unknown)).contains("  memory: 42.16GiB  tps: "));
    }

    #[rstest]
    #[case(7.4, 0, "7")]
    #[case(999.0, 0, "999")]
    #[case(1000.0, 0, "1,000")]
    #[case(1_234_567.0, 0, "1,234,567")]
    #[case(1234.567, 2, "1,234.57")]
    #[case(0.004, 2, "0.00")]
    fn thousands_are_grouped(#[case] value: f64, #[case] decimals: usize, #[case] text: &str) {
        assert_eq!(grouped(value, decimals), text);
    }
}
