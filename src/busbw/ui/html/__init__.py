"""The frame, elements and plots of HTML pages."""
