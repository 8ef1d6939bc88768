package db

import "github.com/go-json-experiment/json"

// EncodeList encodes a list as JSON for a column. An empty list is encoded as "".
func EncodeList[T any](list []T) (string, error) {
	if len(list) == 0 {
		return "", nil
	}
	text, err := json.Marshal(list)
	return string(text), err
}

// DecodeList decodes the result of EncodeList.
func DecodeList[T any](text string) (list []T, err error) {
	if text == "" {
		return nil, nil
	}
	err = json.Unmarshal([]byte(text), &list)
	return list, err
}
