package decode

import (
	"encoding/base64"
	"testing"
)

func TestTransferDecoding(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ in, want string }{
		{"aGVsbG8=", "hello"}, {"aGVs\r\nbG8=\r\n", "hello"}, {"aGVsbG8", "hello"}, {"aGVs bG8=", "hello"},
		{"aGVs*bG8=!", "hello"},
		{"aGVsbG8=\r\naGVsbG8=\r\n", "hellohello"}, {"aGVsbG8=\r\n_______\r\nlist footer", "hello"}, {"", ""}, {"a", ""},
		{"====", ""},
		{"aGVs\x00bG8=", "hello"}, {"aGVsbG8==", "hello"},
	} {
		if got, _ := Base64([]byte(tc.in)); string(got) != tc.want {
			t.Errorf("base64 %q: %q, want %q", tc.in, got, tc.want)
		}
	}
	for _, tc := range []struct{ in, want string }{
		{"a=20b", "a b"}, {"a=\r\nb", "ab"}, {"a= \t\r\nb", "ab"}, {"a  \r\nb", "a\r\nb"}, {"=c3=BC", "ü"}, {"a=b", "a=b"},
		{"a=", "a"},
		{"a=\nb\n", "ab\n"}, {"=3D=", "="}, {"a==20", "a= "}, {"=ZZ", "=ZZ"}, {"", ""},
	} {
		if got, _ := QuotedPrintable([]byte(tc.in)); string(got) != tc.want {
			t.Errorf("quoted-printable %q: %q, want %q", tc.in, got, tc.want)
		}
	}
}

func TestTransferDecodingEdges(t *testing.T) {
	t.Parallel()
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	all, err := base64.StdEncoding.DecodeString(alphabet)
	if err != nil {
		t.Fatal(err)
	}
	for in, want := range map[string]string{
		"!" + alphabet: string(all), "QUJD=!QUJD": "ABCABC", "QQ==AAAA": "A\x00\x00\x00", "QQ==\n-- \nfooter QUJD": "A",
		"QQ==zzzz": "A\xcf\x3c\xf3",
		"QUJ":      "AB", "QU": "A", "Q": "", "": "",
	} {
		if got, _ := Base64([]byte(in)); string(got) != want {
			t.Errorf("base64 %q: %q, want %q", in, got, want)
		}
	}
	for in, want := range map[string]string{
		"=00=09=0a=90=9f=a0=af=AF=F0=ff": "\x00\t\n\x90\x9f\xa0\xaf\xaf\xf0\xff", "=/0=:0=@0=G0=`0=g0": "=/0=:0=@0=G0=`0=g0",
		"=4": "=4", "a=": "a",
		"a = \nb": "a b", "a \t\nb": "a\nb",
	} {
		if got, _ := QuotedPrintable([]byte(in)); string(got) != want {
			t.Errorf("quoted-printable %q: %q, want %q", in, got, want)
		}
	}
	for in, want := range map[string]string{"(x) base64": "", "; x": "", "BASE64; x": "base64", "7bit": Identity,
		"8BITS": Identity, "x": "x"} {
		if got := TransferName(in); got != want {
			t.Errorf("encoding %q: %q, want %q", in, got, want)
		}
	}
	for in, want := range map[string]string{
		"+2D3eANg93gE-": "😀😁", "+2ADcAA-": "𐀀", "+AGEAYgBj-": "abc", "+AGEAYgBjA-": "abc\ufffd", "+AGEAYgBj": "abc",
		"+3AAAYQ-": "\ufffda", "+2AAAYQ-": "\ufffda",
		"+-+": "++", "a+AGE": "aa",
	} {
		if got := decodeUTF7([]byte(in)); got != want {
			t.Errorf("UTF-7 %q: %q, want %q", in, got, want)
		}
	}
}

func TestTransferNames(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"base64": "base64", "BASE64": "base64", "base-64": "base64", `"base64"`: "base64", "base64;": "base64",
		"base64 (MIME)": "base64",
		"base64; x=y":   "base64", "quoted-printable": "quoted-printable", "Quoted_Printable ": "quoted-printable",
		"7bit": Identity,
		"8BIT": Identity, "8-bit": Identity, "8bits": Identity, "7 bit": Identity, "binary": Identity,
		"x-uuencode": UUEncode, "uuencode": UUEncode,
		"X-UUE": UUEncode, "uue": UUEncode, "x-uuencoded": UUEncode, "": "", "x-yencode": "x-yencode",
		"base65": "base65", "base64 or so": "base64 or so",
	} {
		if got := TransferName(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestPercent(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"": "x", "a": "xa", "%C3%bc": "xü", "%41%4": "xA%4", "%": "x%", "%%41": "x%A", "%zz%4g": "x%zz%4g", "a%00": "xa\x00",
	} {
		if got := Percent([]byte("x"), in); string(got) != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
