//! The positive control of a session: an arm like any other, whose program plants a cycle.

use torchleak_protocol::{ArmSpec, Collection, Device, Policy, Program, Start};

use crate::measure::{Place, Recording};
use crate::verdict::{CONTROL_BYTES, Control, Evidence, Predicted, control_found};
use crate::worker::Ending;

const STEPS: u32 = 6;
const WARMUP: u32 = 2;

/// The arms of the control, in the order in which [`ControlArms`] keeps their recordings.
pub const ARMS: [(&str, Policy); 3] = [
    ("uncollected", Policy::Uncollected),
    ("collected", Policy::Collected(Collection { generation: 2 })),
    ("garbage", Policy::Garbage),
];

/// Where the memory of a case on that device is judged, unless its prediction says otherwise.
pub fn place(device: Device) -> Place {
    if device == Device::Cuda { Place::Device } else { Place::Host }
}

/// The command for one of the control's arms.
pub fn spec(arm: u64, policy: Policy, device: Device) -> ArmSpec {
    ArmSpec {
        arm,
        case: "positive control".to_owned(),
        policy,
        start: Start::Fork,
        ranks: 1,
        program: Program::PlantedCycle { bytes: CONTROL_BYTES },
        device,
        steps: STEPS,
        seed: 0,
        threads: 1,
        memory_limit: None,
        artifacts: None,
        show_values: false,
        executable: None,
    }
}

/// What the control's arms reported in the present host.
#[derive(Debug, Default)]
pub struct ControlArms {
    pub recordings: [Recording; 3],
    pub endings: [Option<Ending>; 3],
}

impl ControlArms {
    /// Judges the control in every memory that a case on `device` may be judged by, once all its arms
    /// are over: a counter that sees the GPU says nothing of the one that sees the host.
    pub fn results(&self, device: Device) -> Option<ControlResults> {
        let host = self.result(Place::Host)?;
        let on_device = if device == Device::Cuda { self.result(Place::Device)? } else { host.clone() };
        Some(ControlResults { host, on_device })
    }

    fn result(&self, place: Place) -> Option<Control> {
        for ((name, _), ending) in ARMS.iter().zip(&self.endings) {
            let ending = ending.as_ref()?;
            if *ending != Ending::Done {
                return Some(Control::Missed(format!("its {name} arm {}", ending.reason())));
            }
        }
        let [uncollected, collected, garbage] = &self.recordings;
        Some(control_found(&Evidence {
            uncollected,
            collected,
            garbage,
            others: &[],
            steps: STEPS,
            warmup: WARMUP,
            place,
            predicted: Some(Predicted::held_by_python(CONTROL_BYTES)),
            tolerance: None,
            control: None,
        }))
    }
}

/// What the control showed, by memory.
#[derive(Debug, Clone)]
pub struct ControlResults {
    host: Control,
    on_device: Control,
}

impl ControlResults {
    /// The results of a control that was not run.
    pub fn missing() -> Self {
        let missed = Control::Missed("it was not run".to_owned());
        Self { host: missed.clone(), on_device: missed }
    }

    /// The result in one memory.
    pub fn of(&self, place: Place) -> &Control {
        match place {
            Place::Host => &self.host,
            Place::Device => &self.on_device,
        }
    }
}
