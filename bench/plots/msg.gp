# The figures of messaging; bench/plots/draw writes the data and says where (folder).
# DXNet 2018 shows the same: processing time by message size and by threads, with and without its
# catch-up buffer, three ways of parking, and all nodes sending to all.
set terminal svg size 900,420 font "sans,12" background "white"
set format xy "%.0s%c"
set grid back linecolor "gray85"
set key left top
at(name) = folder . "/" . name . ".dat"


if (has_size) {
set output folder . "/size.svg"
set multiplot layout 1,2
set logscale xy
set xlabel "message size, bytes"
set ylabel "ns a message, one-way, one thread"
plot at("oneway-size-shoal") using 1:(1e9 / $2) with linespoints title "shoal", \
     at("oneway-size-tcp") using 1:(1e9 / $2) with linespoints title "bare socket"
set ylabel "us, median of a request and its answer"
plot at("request-size-shoal") using 1:($2 / 1e3) with linespoints title "shoal", \
     at("request-size-tcp") using 1:($2 / 1e3) with linespoints title "bare socket"
unset multiplot
}

if (has_threads) {
set output folder . "/threads.svg"
unset logscale y
set logscale x 2
set xlabel "application threads, one connection"
set ylabel "ns a message, one-way, 64 bytes"
set logscale y
plot at("threads-on") using 1:(1e9 / $2) with linespoints title "catch-up slots", \
     at("threads-off") using 1:(1e9 / $2) with linespoints title "waiting for earlier ones"
}

if (has_idle) {
set output folder . "/idle.svg"
set multiplot layout 1,2
unset logscale y
set yrange [0:*]
set xlabel "application threads, a request each"
set ylabel "thousand requests a second"
plot for [idle in "spin park sleep"] at("idle-rate-" . idle) using 1:($2 / 1e3) \
     with linespoints title idle
unset yrange
set logscale y
set ylabel "us, median of a request and its answer"
plot for [idle in "spin park sleep"] at("idle-p50-" . idle) using 1:($2 / 1e3) \
     with linespoints title idle
unset multiplot
}

if (has_all) {
set output folder . "/alltoall.svg"
set multiplot layout 1,2
unset logscale y
set yrange [0:*]
set format y "%g"
set xlabel "nodes in one process"
set ylabel "million messages a second, all together"
plot at("alltoall") using 1:($2 / 1e6) with linespoints notitle
set ylabel "resident KiB of an idle connection's end"
plot at("alltoall-memory") using 1:($2 / 1024) with linespoints notitle
unset multiplot
}
