// CPU time of this process, by stage.
#pragma once

#include <ctime>

/// A clock that adds the CPU seconds of its scope to a total.
class StageClock {
    double& m_Total;
    double m_Start;

public:
    /// Returns the CPU seconds of this process so far.
    static double Now() {
        timespec now;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
        return double(now.tv_sec) + double(now.tv_nsec) / 1e9;
    }
    explicit StageClock(double& total) : m_Total(total), m_Start(Now()) {}
    ~StageClock() { m_Total += Now() - m_Start; }
};
