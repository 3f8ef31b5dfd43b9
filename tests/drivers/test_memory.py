import platform
import subprocess
import sys

import pytest

FAULTS = """if True:
    import resource, sys
    import numpy as np
    from overweave.drivers.tcp.memory import keep_freed_memory

    if sys.argv[1] == "keep":
        assert keep_freed_memory()

    def use_and_free():
        for some in [np.empty(1 << 19, np.uint8) for _ in range(4)]:
            some[:: 1 << 12] = 1

    use_and_free()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(50):
        use_and_free()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def pages_asked_for(how):
    done = subprocess.run([sys.executable, "-c", FAULTS, how], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc alone takes such wishes")
def test_the_memory_of_frames_is_not_asked_for_again_and_again():
    assert pages_asked_for("keep") < 200 < pages_asked_for("leave")
