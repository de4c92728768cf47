"""What programs in Taichi's language do, in small: each public function of a file here is one behaviour, named by what is tried,
and returns what is to be seen of it. `taichi` is what `..observing` has put under that name: this package's, or Taichi itself.
"""
