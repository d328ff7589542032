//! Processor time in seconds, user and system.

/// Of all threads of this process since it started.
pub fn process_cpu_s() -> f64 {
    cpu_s(libc::RUSAGE_SELF)
}

/// Of the calling thread since it started.
pub fn thread_cpu_s() -> f64 {
    cpu_s(libc::RUSAGE_THREAD)
}

fn cpu_s(who: libc::c_int) -> f64 {
    // SAFETY: rusage is plain data, valid when zero; getrusage fills it and cannot fail for these
    // two arguments.
    let used = unsafe {
        let mut used: libc::rusage = std::mem::zeroed();
        libc::getrusage(who, &raw mut used);
        used
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 * 1e-6;
    seconds(used.ru_utime) + seconds(used.ru_stime)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_counts_for_its_thread_and_process() {
        let (process, thread) = (process_cpu_s(), thread_cpu_s());
        while thread_cpu_s() - thread < 0.02 {}
        assert!(process_cpu_s() - process >= 0.02);
        let other = std::thread::spawn(thread_cpu_s).join().unwrap();
        assert!(other < 0.02);
    }
}
