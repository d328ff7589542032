//! The thread in the role of NCCL's progress thread: it posts and tests on all channels in turn,
//! and spins.

use std::time::{Duration, Instant};

use busbw_harness::Failure;

use crate::lane::Lane;
use crate::plugin::Plugin;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The process started with `run` sends.
    OneWay,
    /// Both send as fast as possible.
    BothWays,
    /// Both send; each message waits for the previous incoming one, as in the steps of a ring
    /// all-reduce.
    LockStep,
    /// A message and its answer on one channel.
    PingPong,
}

impl Mode {
    /// From the name on the command line.
    pub fn named(name: &str) -> Result<Self, Failure> {
        Ok(match name {
            "one-way" => Self::OneWay,
            "both-ways" => Self::BothWays,
            "lock-step" => Self::LockStep,
            "ping-pong" => Self::PingPong,
            _ => {
                return Err(format!(
                    "--mode {name}: use one-way, both-ways, lock-step or ping-pong"
                ));
            }
        })
    }

    /// Whether the serving process also sends.
    pub fn is_both(self) -> bool {
        self != Self::OneWay
    }
}

/// A channel: what this process sends and receives on it.
pub struct Channel {
    /// To the peer.
    pub out: Option<Lane>,
    /// From the peer.
    pub back: Option<Lane>,
}

/// Whether a sender may post its next message, has to send the end, or has to wait.
enum Next {
    Message,
    End,
    Wait,
}

impl Channel {
    fn step(
        &mut self,
        plugin: &Plugin,
        mode: Mode,
        window: usize,
        over: bool,
    ) -> Result<bool, Failure> {
        let mut moved = false;
        let (mut arrived, mut peer_ends) = (0, false);
        if let Some(back) = &mut self.back {
            while back.has_room() && back.post(plugin, false)? {
                moved = true;
            }
            moved |= back.test(plugin)?;
            (arrived, peer_ends) = (back.done, back.is_ending());
        }
        if let Some(out) = &mut self.out {
            while out.has_room() {
                let next = match (over || peer_ends || out.is_ending(), mode) {
                    (true, _) => Next::End,
                    (false, Mode::LockStep) if out.posted() >= arrived + window => Next::Wait,
                    _ => Next::Message,
                };
                if matches!(next, Next::Wait) || !out.post(plugin, matches!(next, Next::End))? {
                    break;
                }
                moved = true;
            }
            moved |= out.test(plugin)?;
        }
        Ok(moved)
    }

    fn is_over(&self) -> bool {
        self.out.as_ref().is_none_or(Lane::is_over) && self.back.as_ref().is_none_or(Lane::is_over)
    }
}

/// Move messages on all channels. The running process ends this after `seconds`, its peer (None)
/// when it receives the end.
pub fn stream(
    plugin: &Plugin,
    channels: &mut [Channel],
    mode: Mode,
    window: usize,
    seconds: Option<f64>,
) -> Result<(), Failure> {
    let until = seconds.map(|seconds| Instant::now() + Duration::from_secs_f64(seconds));
    while !channels.iter().all(Channel::is_over) {
        let over = until.is_some_and(|until| Instant::now() >= until);
        let mut moved = false;
        for channel in &mut *channels {
            moved |= channel.step(plugin, mode, window, over)?;
        }
        if !moved {
            std::thread::yield_now(); // as NCCL's thread does
        }
    }
    Ok(())
}

/// Send messages back and forth until the time is over. Returns half of each round trip in seconds.
pub fn ping_pong(
    plugin: &Plugin,
    out: &mut Lane,
    back: &mut Lane,
    seconds: Option<f64>,
) -> Result<Vec<f64>, Failure> {
    let until = seconds.map(|seconds| Instant::now() + Duration::from_secs_f64(seconds));
    let (mut halves, serves) = (Vec::new(), until.is_none());
    wait(|| back.post(plugin, false))?;
    loop {
        let began = Instant::now();
        if serves {
            wait(|| back.test(plugin))?;
            if !back.is_ending() {
                wait(|| back.post(plugin, false))?;
            }
        }
        let end = back.is_ending() || until.is_some_and(|until| began >= until);
        wait(|| out.post(plugin, end))?;
        if !serves {
            wait(|| back.test(plugin))?;
            if !back.is_ending() {
                wait(|| back.post(plugin, false))?;
                halves.push(began.elapsed().as_secs_f64() / 2.0);
            }
        }
        wait(|| out.test(plugin))?;
        if end {
            return Ok(halves);
        }
    }
}

fn wait(mut attempt: impl FnMut() -> Result<bool, Failure>) -> Result<(), Failure> {
    while !attempt()? {
        std::thread::yield_now();
    }
    Ok(())
}
