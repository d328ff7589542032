"""How anything is shown: columns, number formats, the frame and plots of HTML pages."""
