"""The numbers that fits depend on: one line each with value, unit, kind and reason; see `cctrace.path.constants`."""

# --- fitted paths ----------------------------------------------------------------------------------------------------
RATE_SHOWS = 0.01  # share | set | by which the deviation of the delays must fall with the queue taken into account
UNSURE = 0.2  # share | set | standard error of a rate from which on it is no estimate
CLOCK_ERROR = 1e-6  # of a rate | set | a capture tells when a packet left the bottleneck to the nanosecond or so
GRAIN_US = 2.0  # us | set | delays do not resolve less
STANDS = 200.0  # times the sd | set | that a queue must stand for the delays to show its rate by themselves
MOST_ROUNDS = 3  # rounds | accuracy | of taking delays and rate in turn
MOVED = 0.002  # share | accuracy | by which a rate must move for the delays to be taken anew
OVERTAKING = 1000  # quantiles | accuracy | of the delays of packets that overtake: one in a thousand may be early
UNSEEN_REACH = 10.0  # times | set | its bound that something may be which was bounded from one side only

# --- jitter ----------------------------------------------------------------------------------------------------------
MOST_EVENTS = 6000  # draws | accuracy | used of a long flow: blocks of groups, evenly spread
LEAST_EVENTS = 30  # draws | set | for a distribution to be fitted, or tested
JITTER_DRAWS = 200  # draws | accuracy | of the bootstrap without a family
AS_GOOD = 6.0  # AIC | set | difference up to which the simpler family is as good
NEAR_AIC = 5e-4  # of AIC | set | the same: no path draws exactly from a family, and 100,000 samples would tell
REFUTED = 0.01  # probability | set | of the residuals from which on a family does not fit
FAR_OFF = 0.05  # distance | set | of the residuals from uniform from which on none does
MIXTURE_SHOWS = 0.5  # of the draws | set | that must be known for a mixture to be looked for
WANDERS = 0.03  # distance | set | of the residuals from which on what moves all packets of a stretch is taken out
WANDER_US = 50_000.0  # us | set | that stretch
STEADIER = 0.6  # share | set | of that distance that must be left at most
GRID = 768  # points | accuracy | at which a distribution is evaluated; between them it is interpolated
FIRST = 2  # segments | definition | that a receiver may have before it acknowledges [RFC1122] 4.2.3.2
WIDEST = 1.0  # of the range of the delays | set | that the sd of a family may be at most: no sample has half of it
STALL = 0.03  # share | set | of the delays that are stalls of a host, not jitter, at most
STALLS_SHOW = 4.0  # log likelihood | set | that stalls must explain
TEST_DRAWS = 400  # draws | accuracy | of the test of a distribution
TEST_POINTS = 99  # points | accuracy | at which the test compares distributions
TEST_SHIFT = 0.05  # of a parameter's unit | accuracy | by which the test moves it
FLAT = 0.25  # share | set | of flat pairs from which on draws are shared, unless chance explains a third of them
SELDOM = 0.05  # share | set | of neighbours that arrive apart where each has a draw of its own, and most wait
BIN_US = 50.0  # us | accuracy | of the search for the length of a slot
PIECE = 200  # groups | accuracy | taken together where not all are used

# --- rate and jitter together ----------------------------------------------------------------------------------------
MOST_GROUPS = 12_000  # ACKs | accuracy | whose likelihood is computed
KEPT_RATES = 8  # rates | accuracy | whose delays are kept while the likelihood is looked at around them
MOST_JOINT_STEPS = 4  # rates | accuracy | for which this is done
WEAK = 0.002  # of log rate | set | standard error from which on its likelihood is looked at as a whole
PROFILE_REACH = 0.9162907318741551  # of log rate | accuracy | how far: a factor of 2.5
PROFILE_POINTS = 12  # points | accuracy | to each side
HOPELESS = 30.0  # log likelihood | accuracy | below the maximum, from which on it is no use to look farther
DROP = 1.92  # log likelihood | definition | at the ends of a 95 % interval: half the quantile of chi-square(1)
MOST_MOVES = 12  # moves | accuracy | of a climb
KNOWN_RATE = 1e-4  # of log rate | set | standard error up to which no other family of jitter is tried
RIVAL_AIC = 150.0  # AIC | set | difference up to which another family is tried
MOST_RIVALS = 2  # families | accuracy | that are tried
MOST_TIMES = 30.0  # times | accuracy | that the sd is larger or smaller than where the search began
DEFINITE = 1e-5  # eigenvalue | accuracy | the least of a curvature whose diagonal is one
FARTHEST = 0.5  # of log rate | accuracy | of one move
LEAST_LOG = -1e6  # log likelihood | accuracy | of an ACK
NO_STALLS = -10.0  # log-odds | accuracy | of stalls that are none

# --- collapse --------------------------------------------------------------------------------------------------------
LEAST_JITTER = 1e-2  # of the mean delay | set | less tells nothing of a process
MOST_JITTER = 1.0  # of the mean delay | set | up to which a threshold is looked for
SHAPE_ERROR = 0.04  # of log sd | set | for a shape that only resembles the true one further out
ASSUMED_SLOT_US = 5000.0  # us | set | of jitter too small to show its process
QUICK_SEGMENTS = 800_000  # segments | accuracy | simulated by `cctrace analyze`
QUICK_EVENTS = 2_000  # draws | accuracy | used by `cctrace analyze`
QUICK_GROUPS = 4_000  # ACKs | accuracy | whose likelihood `cctrace analyze` computes
QUICK_PACKETS = 100_000  # packets | accuracy | used by `cctrace analyze`
QUICK_BPS = 250e6  # bit/s | accuracy | up to which it does so
LOSSY = 0.02  # share | set | of segments lost from which on runs without loss say little
FASTER = 1.3  # times the fitted rate | set | for half a second: then it is not the path's
LEAST_PART = 300  # RTTs | set | of a part of a flow that is asked for a rate of its own
CHANGED = 0.12  # of log rate | set | from which on it has one
BUSY = 0.5  # share | set | of the time without others' packets in the queue, below which runs of one flow say little
JITTERY = 0.05  # of the mean delay | set | for a fall of the throughput to be called one of jitter
UNLIKELY = 0.05  # probability | set | of a collapse, below which the answer is no
SEGMENTS = 4_000_000  # segments | accuracy | simulated in a search
LONGEST_S = 60.0  # s | accuracy | of a run
SHORTEST_S = 21.0  # s | definition | of a run: the min_rtt filter lives for 10 s, the tail begins at a third
RUNS = 14  # runs | accuracy | of a search
LEAST_RUNS = 11  # runs | accuracy | of a search
STEP = 1.5  # times | accuracy | by which the sd is moved until the share crosses one half
CLOSE = 0.15  # of log sd | set | further runs count less
NEAR_THRESHOLD = 0.45  # of log sd | set | around the threshold: runs that say where it is
SCATTER = 0.05  # of log sd | set | least standard error of `RUNS` runs: what distinguishes one set of seeds
LEAST_SPREAD = 0.08  # of log sd | set | by which chance moves the threshold of one run
MOST_SPREAD = 0.6  # of log sd | set | the same
UNKNOWN_SPREAD = 0.15  # of log sd | set | the same where no curve was laid through the runs
FAR_SHARE = 0.2  # of the mean delay | accuracy | sd below which a quick forecast looks for no threshold
FAR_RUNS = 2  # runs | set | that must agree that a threshold is not below: chance decides near it
NO_COLLAPSE = 0.3  # of the threshold | set | no run collapses below
WINDOWS_PER_HOUR = 90  # windows | definition | of 40 s, the tail of the longest run

# --- parameters, groups of flows, shares -----------------------------------------------------------------------------
SCORE_SPREAD = 1.5  # standard errors | set | 0.98 were they known; they are estimated from tens of intervals
LEAST_BLOCKS = 10  # intervals | set | of 0.2 s in which something was sent
RESAMPLES = 400  # draws | accuracy | of the bootstrap of a correlation
MOST_GRIDS = 4  # grids | accuracy | each twice as fine as the one before
PEAKS = 3  # points | accuracy | of the grid, around which is looked closer
FINEST = 1e-4  # of the range | accuracy | steps of a climb
FINEST_EDGE = 1e-5  # of the range | accuracy | of the ends of an interval
NEAREST = 5  # points | accuracy | to begin a profile from
WIDE = 100  # times | set | that a range spans from which on its grid is geometric
LEAST_FLOWS = 3  # flows | set | for a spread between flows to be estimated
MOST_BETWEEN = 3.0  # of the range of the values | accuracy | sd between flows, averaged over up to here
BETWEEN_POINTS = 301  # points | accuracy | of that average
LEAST_SHARE_BYTES = 1_000_000  # bytes | set | of a flow that competes
BIN_NS = 500_000_000  # ns | set | in which shares are counted
SETTLING = 0.2  # of the common time | set | at its beginning, in which flows sort themselves out
LEAST_COMMON_S = 5.0  # s | set | of common time
LEAST_TOGETHER = 0.5  # of the longest flow's time | set | that a competitor must be up
SHARE_DRAWS = 1000  # draws | accuracy | of the bootstrap of shares
