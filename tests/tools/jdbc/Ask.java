import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.Properties;

/** Queries a server through the Arrow Flight SQL JDBC driver, as any JDBC program does, and prints the results. */
public class Ask {
    public static void main(String[] words) throws Exception {
        Properties properties = new Properties();
        properties.setProperty("useEncryption", "false");
        if (words.length > 3) {
            properties.setProperty("user", words[2]);
            properties.setProperty("password", words[3]);
        }
        try (Connection connection = DriverManager.getConnection("jdbc:arrow-flight-sql://" + words[0], properties)) {
            metadata(connection.getMetaData());
            try (ResultSet rows = connection.createStatement().executeQuery(words[1])) {
                print("row", rows);
            }
            try (PreparedStatement statement = connection.prepareStatement("SELECT ? + 1")) {
                statement.setLong(1, 41);
                try (ResultSet rows = statement.executeQuery()) {
                    print("prepared", rows);
                }
            }
            try {
                connection.createStatement().executeUpdate("DROP TABLE x");
                System.out.println("update taken");
            } catch (SQLException refused) {
                System.out.println("update refused");
            }
        }
    }

    private static void metadata(DatabaseMetaData data) throws SQLException {
        System.out.println("product " + data.getDatabaseProductName() + " " + data.isReadOnly());
        print("catalog", data.getCatalogs());
        print("schema", data.getSchemas());
        print("type", data.getTableTypes());
        try (ResultSet tables = data.getTables(null, null, "%", null)) {
            while (tables.next()) {
                System.out.println("table " + tables.getString("TABLE_CAT") + " " + tables.getString("TABLE_SCHEM") + " "
                    + tables.getString("TABLE_NAME") + " " + tables.getString("TABLE_TYPE"));
            }
        }
        try (ResultSet columns = data.getColumns(null, null, "sample.bam", "%")) {
            while (columns.next()) {
                System.out.println("column " + columns.getString("COLUMN_NAME") + " " + columns.getString("TYPE_NAME"));
            }
        }
        try (ResultSet keys = data.getPrimaryKeys(null, null, "sample.bam")) {
            System.out.println("keys " + keys.next());
        }
    }

    private static void print(String word, ResultSet open) throws SQLException {
        try (ResultSet rows = open) {
            printAll(word, rows);
        }
    }

    private static void printAll(String word, ResultSet rows) throws SQLException {
        int columns = rows.getMetaData().getColumnCount();
        while (rows.next()) {
            StringBuilder line = new StringBuilder(word);
            for (int column = 1; column <= columns; column++) {
                line.append(' ').append(rows.getObject(column));
            }
            System.out.println(line);
        }
    }
}
