package search

import "testing"

// The addresses in a search may be complete or not, and their domains may have letters beyond ASCII.
func TestAddressesOfQuery(t *testing.T) {
	t.Parallel()
	to := []string{"Anna <Anna@bücher.example>", "jane@shop.example"}
	for text, finds := range map[string]bool{"anna@bücher.example": true, "<ANNA@BÜCHER.example>": true,
		"@bücher.example": true, "anna@xn--bcher-kva.exam": true, "anna@": true, "jane@sh": true, "@SHOP.": true,
		"anna@b": false, "anna@shop.example": false, "@ücher.example": false} {
		c, err := Query{Text: text}.Check()
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if got := c.Select(&Message{From: "x@other.example", To: to}); got != finds {
			t.Errorf("%q finds the email: %t, want %t", text, got, finds)
		}
	}
}
