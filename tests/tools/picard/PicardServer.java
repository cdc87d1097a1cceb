import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import picard.cmdline.CommandLineProgram;

/**
 * A resident Picard: one JVM for a whole test run, because a start costs seconds and a small file costs milliseconds.
 *
 * <p>In: one command per line on stdin, the tool's name and its arguments separated by tabs. Out: one line per command on
 * stdout, either {@code OK <exit code>} or {@code ERR <exception class> <message>}. What Picard itself prints goes to
 * stderr. Ends when stdin ends.
 *
 * <p>Run it with {@code java -Dpicard.useLegacyParser=false -cp 'JARS/*' PicardServer.java}.
 */
public final class PicardServer {
    public static void main(final String[] ignored) throws Exception {
        final PrintStream replies = System.out;
        System.setOut(System.err);
        final BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        replies.println("READY");
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            replies.println(run(line.split("\t")));
            replies.flush();
        }
    }

    private static String run(final String[] words) {
        try {
            return "OK " + tool(words[0]).instanceMain(Arrays.copyOfRange(words, 1, words.length));
        } catch (final Throwable thrown) {
            final String message = String.valueOf(thrown.getMessage()).replaceAll("\\s+", " ");
            return "ERR " + thrown.getClass().getName() + " " + message;
        }
    }

    private static CommandLineProgram tool(final String name) {
        return switch (name) {
            case "CollectAlignmentSummaryMetrics" -> new picard.analysis.CollectAlignmentSummaryMetrics();
            case "CollectBaseDistributionByCycle" -> new picard.analysis.CollectBaseDistributionByCycle();
            case "CollectGcBiasMetrics" -> new picard.analysis.CollectGcBiasMetrics();
            case "CollectHsMetrics" -> new picard.analysis.directed.CollectHsMetrics();
            case "CollectInsertSizeMetrics" -> new picard.analysis.CollectInsertSizeMetrics();
            case "CollectOxoGMetrics" -> new picard.analysis.CollectOxoGMetrics();
            case "CollectTargetedPcrMetrics" -> new picard.analysis.directed.CollectTargetedPcrMetrics();
            case "CollectWgsMetrics" -> new picard.analysis.CollectWgsMetrics();
            case "CreateSequenceDictionary" -> new picard.sam.CreateSequenceDictionary();
            case "MarkDuplicates" -> new picard.sam.markduplicates.MarkDuplicates();
            case "MeanQualityByCycle" -> new picard.analysis.MeanQualityByCycle();
            case "QualityScoreDistribution" -> new picard.analysis.QualityScoreDistribution();
            case "SortSam" -> new picard.sam.SortSam();
            case "ValidateSamFile" -> new picard.sam.ValidateSamFile();
            default -> throw new IllegalArgumentException("PicardServer has no tool " + name);
        };
    }
}
