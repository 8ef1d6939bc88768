package config

import "testing"

func TestMaskURLs(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"https://example.com/a":                    "https://example.com/a",
		"https://u:p@example.com/a":                "https://<secret>@example.com/a",
		"https://example.com/?token=a&empty=":      "https://example.com/?token=<secret>&empty=",
		"https://example.com/?a":                   "https://example.com/?<secret>",
		"https://example.com/? what":               "https://example.com/? what",
		"https://e.example/?t=a,b":                 "https://e.example/?t=<secret>",
		`"https://e.example/?t=a\"b" must be`:      `"https://e.example/?t=<secret>" must be`,
		`"https://e.example/?t=a" and "s3://b?x=1`: `"https://e.example/?t=<secret>" and "s3://b?x=<secret>`,
		"s3://mail?region=eu-1&prefix=a&secret=b":  "s3://mail?region=eu-1&prefix=a&secret=<secret>",
		"postgres://u:p@h/x?password=a":            "postgres://<secret>@h/x?password=<secret>",
		"is it a=b?c=d":                            "is it a=b?c=d",
	} {
		if got := MaskURLs(text); got != want || MaskURLs(got) != want {
			t.Errorf("%s became %s, want %s", text, got, want)
		}
	}
}
