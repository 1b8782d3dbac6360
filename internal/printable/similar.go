package printable

import "strings"

// Similar returns the candidate that someone who wrote a word probably meant, "" if
// none is close enough. A short word must be closer than a long one.
func Similar(word string, candidates []string) string {
	best, least := "", min(2, len([]rune(word))/3)+1
	for _, c := range candidates {
		if d := distance(strings.ToLower(word), strings.ToLower(c)); d < least || d == least && best != "" && c < best {
			best, least = c, d
		}
	}
	return best
}

// distance counts the letters to insert, remove, replace or swap with the next one to
// turn one word into another.
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	rows := make([][]int, len(x)+1)
	for i := range rows {
		rows[i] = make([]int, len(y)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(x); i++ {
		for j := 1; j <= len(y); j++ {
			replace := rows[i-1][j-1]
			if x[i-1] != y[j-1] {
				replace++
			}
			rows[i][j] = min(replace, rows[i-1][j]+1, rows[i][j-1]+1)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(x)][len(y)]
}
