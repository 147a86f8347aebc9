"""Human studies: participants pick the picture that fits a caption, rate captions, or compare them."""
