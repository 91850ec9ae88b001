"""Parts that every package uses: parameters, files, text, time limits, threads and seeds."""
