"""Steps of the pipeline, one file each: DataFrame in, DataFrame out, no session and no files."""
