"""joblib: an array of N MiB that it puts into /dev/shm, where two workers map it. Prints sums that must not depend on memory."""
import sys

import numpy
from joblib import Parallel, delayed


def sums(array, nth):
    half = array[nth::2]
    return [float(numpy.sum(half * factor)) for factor in (1.0, 2.0)]


whole = numpy.arange(int(sys.argv[1]) << 17, dtype=numpy.float64)
print(Parallel(n_jobs=2, max_nbytes="1M", temp_folder="/dev/shm")(delayed(sums)(whole, nth) for nth in range(2)))
