"""How any file of busbw is read and shown: kinds of files, views, the HTML report."""
