package web

import "testing"

func TestInWords(t *testing.T) {
	labels := map[string]string{"to": "Recipients", "html": "HTML", "text": "Text"}
	for _, c := range []struct{ field, message, want string }{
		{"to", "Missing `to` field.", "Enter a value."},
		{"html", "Missing `html` or `text` field.", "Enter “HTML” or “Text”."},
		{"to", "The `to` field must be a list.", "This must be a list."},
		{"to", "The `to` field has 60 addresses; the limit is 50.", "This field has 60 addresses; the limit is 50."},
		{"to", "Invalid `to` field: the domain has no dot. Use `email@example.com`.",
			"The domain has no dot. Use email@example.com."},
		{"to", "Invalid `to` field. é is not allowed.", "É is not allowed."},
		{"q", "The `q` parameter is longer than 500 bytes.", "This field is longer than 500 bytes."},
		{"", "The `to` field and the `cc` field are empty.", "The “Recipients” field and the cc field are empty."},
		{"", "No names.", "No names."},
	} {
		if got := InWords(c.field, c.message, labels); got != c.want {
			t.Errorf("%s: %q, want %q", c.message, got, c.want)
		}
	}
}
