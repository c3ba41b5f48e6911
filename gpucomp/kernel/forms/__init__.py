"""What a kernel looks like, read by spaces and emitters alike: nothing is printed here."""
